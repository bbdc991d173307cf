"""What ThreadSanitizer reports, and whose fault it is."""

import dataclasses
import itertools
import re

OURS = "_core."

CPYTHONS_OWN = {
    # A reader of a list or dict takes its item without a lock and finds out then whether it is still there; the
    # memory may have become another object meanwhile, which is why the reader's steps are atomic.
    "_Py_TryIncrefCompare": "reads the reference counts of what may be another object by now",
    "new_reference": "sets the reference counts of a new object, plainly",
    "_PyType_AllocNoTrack": "clears the memory of a new object, plainly",
}
"""Functions of CPython (3.13) that race with each other by design, or by a fault of its own."""


@dataclasses.dataclass
class Frame:
    function: str
    place: str
    module: str


@dataclasses.dataclass
class Report:
    text: str
    kind: str
    accesses: list[list[Frame]]
    """The stacks that race, innermost frame first; empty where ThreadSanitizer lost one."""

    @property
    def is_ours(self):
        """Whether an access is in a function of ours, those of the headers included that it was compiled with."""
        return any(frames and frames[0].module.startswith(OURS) for frames in self.accesses)

    @property
    def is_known(self):
        """Whether CPython is at fault, in a function that is known for it."""
        if self.kind != "data race" or not self.accesses or self.is_ours:
            return False
        for frames in self.accesses:
            inner = itertools.takewhile(lambda frame: not frame.module.startswith(OURS), frames)
            if any(frame.function in CPYTHONS_OWN for frame in inner):
                return True
        return False


FRAME = re.compile(r"^ +#\d+ (\S+) (.*?) ?\((\S+)\+0x[0-9a-f]+\)", re.MULTILINE)
ACCESS = re.compile(r"^ +(?:Previous )?(?:atomic )?(?:read|write) of size ", re.IGNORECASE)


def frames_of(stack):
    frames = [Frame(*found) for found in FRAME.findall(stack)]
    # The functions of libc that ThreadSanitizer puts itself before: what called them made the access.
    return list(itertools.dropwhile(lambda frame: frame.module.startswith("libtsan"), frames))


def parse(text):
    """The reports in a log of ThreadSanitizer."""
    for found in re.finditer(r"^WARNING: ThreadSanitizer: (.*?) \(pid=\d+\)\n(.*?)(?:^=====|\Z)", text, re.DOTALL | re.MULTILINE):
        stacks = [part for part in found.group(2).split("\n\n") if ACCESS.match(part)]
        yield Report(found.group(0), found.group(1), [frames_of(stack) for stack in stacks])
