"""A state run as an administrator has them: 30 states, Jinja, requisites, a pillar with includes."""

TEMPLATE = """
# {{ name }}, of {{ grains['os'] }} {{ grains['kernel'] }}
{% for key, value in pillar['web']['settings'] | dictsort -%}
{{ key }} = {{ value }}
{% endfor -%}
{% for user in pillar['people'] -%}
allow {{ user }} {{ salt['pillar.get']('web:port', 80) }}
{% endfor -%}
{% if salt['grains.get']('kernel') == 'Linux' %}epoll on{% endif %}
"""
COMMON = """
{% set root = pillar['root'] %}
{% for part in ('etc', 'etc/sites', 'var', 'var/log', 'srv') %}
{{ root }}/{{ part }}:
  file.directory:
    - mode: '0755'
    - makedirs: True
{% endfor %}
"""
FILES = """
include:
  - common
{% set root = pillar['root'] %}
{% for site in pillar['web']['sites'] %}
{{ root }}/etc/sites/{{ site }}.conf:
  file.managed:
    - source: salt://site.jinja
    - template: jinja
    - mode: '0644'
    - context:
        name: {{ site }}
    - require:
      - file: {{ root }}/etc/sites
{% endfor %}
{% for name in ('motd', 'hosts.allow', 'banner') %}
{{ root }}/etc/{{ name }}:
  file.managed:
    - contents_pillar: web:{{ name }}
    - require:
      - file: {{ root }}/etc
{% endfor %}
{{ root }}/current:
  file.symlink:
    - target: {{ root }}/srv
    - require:
      - file: {{ root }}/srv
reload:
  cmd.run:
    - name: 'true'
    - onchanges:
      - file: {{ root }}/etc/sites/*
version:
  cmd.run:
    - name: echo 1 > {{ root }}/var/version
    - creates: {{ root }}/var/version
    - require:
      - file: {{ root }}/var
check:
  cmd.run:
    - name: 'true'
    - require:
      - cmd: version
done:
  test.succeed_without_changes:
    - require:
      - file: {{ root }}/etc/motd
      - cmd: check
    - order: last
"""
ACCOUNTS = """
{% for user in pillar['people'] %}
group {{ user }}:
  group.present:
    - name: {{ user }}
user {{ user }}:
  user.present:
    - name: {{ user }}
    - groups: [{{ user }}]
    - require:
      - group: group {{ user }}
{% endfor %}
packages:
  pkg.installed:
    - pkgs: [bash, coreutils]
a package:
  pkg.installed:
    - name: tar
daemon:
  service.running:
    - name: cron
    - watch:
      - pkg: packages
other:
  service.dead:
    - name: no-such-service
"""
JOBS = (("files", {}), ("accounts", {"test": True}))
"""(sls, keyword arguments of state.apply): 22 states that act, and 8 that would change the machine, dry."""
STATES = 30


def write(rig):
    """Lay all of it down for an InProcessMinion."""
    rig.write("srv/site.jinja", TEMPLATE)
    for name, text in (("common", COMMON), ("files", FILES), ("accounts", ACCOUNTS)):
        rig.write(f"srv/{name}.sls", text)
    sites = ", ".join(f"site{number}" for number in range(9))
    settings = "".join(f"    key{number}: {number}\n" for number in range(20))
    texts = "".join(f"  {name}: words for {name}\n" for name in ("motd", "hosts.allow", "banner"))
    rig.write("pillar/top.sls", "base:\n  '*': [site]\n")
    rig.write("pillar/site.sls", f"include:\n  - web\n  - people\nroot: {rig.root}/machine\n")
    rig.write("pillar/web.sls", f"web:\n  port: 8080\n  sites: [{sites}]\n  settings:\n{settings}{texts}")
    rig.write("pillar/people.sls", "{% set names = ('ann', 'bob') %}\npeople: {{ names | list | json }}\n")
