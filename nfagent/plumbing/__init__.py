"""Port plumbing: bridges, patch ports, PCIe ports and interfaces over OVSDB. Never OpenFlow.

server_config   server.toml, read and checked
layout          what a switch should have
bridges         making it so on one switch
servers         the same for all switches of a server
errors          everything that can be raised
"""

import warnings

# The ovs library looks whether eventlet (which os-ken brings) is there; eventlet then warns every user of these
# commands about itself.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
