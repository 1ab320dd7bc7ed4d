"""All exceptions of the lab.

LabError
├── SpecError                  an impossible LabSpec
├── LabNameError               a lab's name or directory that cannot be used
├── LabRunningError            a lab of that name is running or starting
├── LabNotRunningError         a lab of that name is not running
├── NamespacesRefusedError     this user may not create namespaces here
├── StartError                 something did not start (its message is quoted)
└── ControlError               a running lab refused a request
"""


class LabError(Exception):
    """Base class of all of them."""


class SpecError(LabError):
    """An impossible LabSpec."""


class LabNameError(LabError):
    """A lab's name or directory that cannot be used."""


class LabRunningError(LabError):
    """A lab of that name is running or starting."""


class LabNotRunningError(LabError):
    """A lab of that name is not running."""


class NamespacesRefusedError(LabError):
    """This user may not create namespaces here."""


class StartError(LabError):
    """Something did not start."""


class ControlError(LabError):
    """A running lab refused a request."""
