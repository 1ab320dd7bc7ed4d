"""Everything that the lab raises.

LabError
├── SpecError                  a LabSpec that describes no possible server
├── LabNameError               a lab's name or directory that cannot be used
├── LabRunningError            a lab of that name runs already, or is just being started
├── LabNotRunningError         no lab of that name runs
├── NamespacesRefusedError     this user may not make namespaces here
├── StartError                 something did not come up (its own words are quoted)
└── ControlError               a running lab refused a request
"""


class LabError(Exception):
    """Base of the tree above; catch this to catch them all."""


class SpecError(LabError):
    """A LabSpec that describes no possible server."""


class LabNameError(LabError):
    """A lab's name or directory that cannot be used."""


class LabRunningError(LabError):
    """A lab of that name runs already, or is just being started."""


class LabNotRunningError(LabError):
    """No lab of that name runs."""


class NamespacesRefusedError(LabError):
    """This user may not make namespaces here."""


class StartError(LabError):
    """Something did not come up."""


class ControlError(LabError):
    """A running lab refused a request."""
