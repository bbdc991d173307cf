"""``salt.utils.yamldumper``: PyYAML goes by the exact type, so what stands for Salt's opts is written as Salt's are."""

import salt.utils.yamldumper  # noqa: F401  its dumpers are to be there
from yaml.representer import SafeRepresenter

from .context import ModuleOpts
from .optsdict import HandedOpts, JobDict, JobList, JobOpts, WatchedOpts


def _represent_opts(dumper, opts):
    return dumper.represent_dict(opts.to_dict())


def _represent_dict(dumper, job_dict):
    return dumper.represent_dict(dict(job_dict))


def _represent_list(dumper, job_list):
    return dumper.represent_list(list(job_list))


_REPRESENTERS = {
    **dict.fromkeys((HandedOpts, JobOpts, ModuleOpts, WatchedOpts), _represent_opts),
    JobDict: _represent_dict,
    JobList: _represent_list,
}


def _dumpers(base):
    yield base
    for dumper in base.__subclasses__():
        yield from _dumpers(dumper)


def install():
    """Tell each class of dumper that has representers of its own; the others have those of one of these."""
    for dumper in set(_dumpers(SafeRepresenter)):
        if "yaml_representers" in vars(dumper):
            for type_, represent in _REPRESENTERS.items():
                dumper.add_representer(type_, represent)
