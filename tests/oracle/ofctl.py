"""The stock ovs-ofctl, whose output for two switches can be compared."""

import subprocess


def ofctl(target: str, *words: str) -> str:
    """Run ovs-ofctl; return what it prints, without times and the target."""
    options = [word for word in words if word.startswith("-")]
    command, *arguments = [word for word in words if not word.startswith("-")]
    argv = ["ovs-ofctl", *options, command, target, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    said = (done.stdout + done.stderr).replace(target, "TARGET")
    return "\n".join(line.partition("|ofp_")[2] or line for line in said.splitlines())
