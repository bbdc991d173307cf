"""``salt.utils.yamldumper``: PyYAML goes by the exact type, so what stands for Salt's opts is written as Salt's are."""

from salt.utils.yamldumper import represent_dictproxy, represent_listproxy, represent_optsdict
from yaml.representer import SafeRepresenter

from .context import ModuleOpts
from .optsdict import HandedOpts, JobDict, JobList, JobOpts, WatchedOpts

_REPRESENTERS = {
    **dict.fromkeys((HandedOpts, JobOpts, ModuleOpts, WatchedOpts), represent_optsdict),
    JobDict: represent_dictproxy,
    JobList: represent_listproxy,
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
