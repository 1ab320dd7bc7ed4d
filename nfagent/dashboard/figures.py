"""Figures for people. Callers word unknown figures, never as zero."""

from datetime import UTC, datetime

_DAY_S = 86_400
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def rate(mbps: float) -> str:
    """Format traffic, from megabits per second."""
    if mbps <= 0:
        return "0 Mb/s"
    if mbps < 0.1:
        return "< 0.1 Mb/s"
    if mbps < 9.95:
        return f"{mbps:.1f} Mb/s"
    if mbps < 999.5:
        return f"{mbps:.0f} Mb/s"
    return f"{mbps / 1000:.2f} Gb/s" if mbps < 99_950 else f"{mbps / 1000:.0f} Gb/s"


def count(number: int) -> str:
    """Of things."""
    if number < 10_000:
        return f"{number:,}"
    if number < 999_500:
        return f"{number / 1000:.0f} k" if number >= 99_950 else f"{number / 1000:.1f} k"
    return f"{number / 1_000_000:.1f} M"


def cores(millicores: int) -> str:
    """Format CPU as a number of cores."""
    if millicores <= 0:
        return "0"
    if millicores < 5:
        return "< 0.01"
    if millicores < 995:
        return f"{millicores / 1000:.2f}"
    return f"{millicores / 1000:.1f}" if millicores < 99_950 else f"{millicores / 1000:.0f}"


def size(number: int) -> str:
    """Format bytes, decimal."""
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_BYTE_UNITS[unit]}" if unit == 0 or value >= 9.95 else f"{value:.1f} {_BYTE_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < 0.000_999_5:
        return f"{max(seconds, 0) * 1e6:.0f} µs"
    if seconds < 0.999_5:
        return f"{seconds * 1e3:.1f} ms" if seconds < 0.099_95 else f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def ago(seconds: float) -> str:
    """Format how long ago something was, so roughly that the text seldom changes."""
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < _DAY_S:
        return f"{seconds // 3600:.0f} h ago"
    days = int(seconds // _DAY_S)
    return f"{days} day{'' if days == 1 else 's'} ago"


def percent(part: float) -> str:
    """Format a share, from 0 to 1."""
    return "< 1 %" if 0 < part < 0.01 else f"{100 * part:.0f} %"


def clock(at: float, now: float) -> str:
    """Format a time in UTC: the time of day, with the date unless it is today."""
    moment = datetime.fromtimestamp(at, UTC)
    today = int(at // _DAY_S) == int(now // _DAY_S)
    return f"{moment:%H:%M:%S}" if today else f"{moment.day} {moment:%b %H:%M}"


def stamp(at: float) -> str:
    """Format a time for programs."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
