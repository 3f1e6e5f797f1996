"""Writes parts of SQL, for the languages that are translated into it: literals, networks, and regular expressions, whose flags
come first, and of which only ``i`` is known.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from asterism.errors import PatternProcessorError

_ANY = "(?:.|\n|\r|\u0085|\u2028|\u2029)"


def regex_text(pattern: str, flags: str = "") -> str:
    r"""The pattern of RLIKE.

    :param flags: of ``i`` (letters of any case), ``m`` (``^`` and ``$`` also match at lines), ``s`` (``.`` matches line
        terminators); also at the beginning of the pattern, as in ``(?i)``
    :raises PatternProcessorError: a flag cannot be expressed

    >>> regex_text(r"cmd\.exe", "i")
    '(?i)cmd\\.exe'
    >>> regex_text("a.[.]", "s")
    'a(?:.|\n|\r|\x85|\u2028|\u2029)[.]'
    """
    while pattern.startswith("(?") and ")" in pattern and pattern[2 : pattern.index(")")].isalpha():
        end = pattern.index(")")
        flags, pattern = flags + pattern[2:end], pattern[end + 1 :]
    unknown = set(flags) - set("ims")
    if unknown:
        raise PatternProcessorError(f"the flag {min(unknown)!r} of a regular expression is not supported")
    written: list[str] = []
    in_class = escaped = False
    for letter in pattern:
        special = not escaped and not in_class
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        if special and letter in "^$" and "m" in flags:
            raise PatternProcessorError(
                f"{letter} with the flag m (multi line) of a regular expression is not supported"
            )
        written.append(_ANY if special and letter == "." and "s" in flags else letter)
    return ("(?i)" if "i" in flags else "") + "".join(written)


def text_literal(text: str) -> str:
    r"""
    >>> print(text_literal("it's \\"))
    'it\'s \\'
    """
    # Spark replaces ${...} with a setting before it parses the SQL.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"


def number_literal(number: float) -> str:
    """
    >>> number_literal(5), number_literal(-0.5), number_literal(1e-7)
    ('5', '-0.5D', '1e-07')
    """
    text = repr(number)
    return text if isinstance(number, int) or "e" in text else f"{text}D"


def network_condition(column: str, network: IPv4Network | IPv6Network) -> str:
    """Whether an IP address, as a text, is in a network."""
    if isinstance(network, IPv4Network):
        return ipv4_condition(column, network)
    return ipv6_condition(column, network)


def ipv4_condition(column: str, network: IPv4Network) -> str:
    """Whether an IPv4 address, as a text, is in a network.

    >>> ipv4_condition("`ip`", IPv4Network("10.0.0.1"))
    "CAST(`ip` AS STRING) = '10.0.0.1'"
    """
    text = f"CAST({column} AS STRING)"
    whole, bits = divmod(network.prefixlen, 8)
    octets = str(network.network_address).split(".")
    if whole == 4:
        return f"{text} = {text_literal(str(network.network_address))}"
    # So that 10.0.0.1.example.com is not in 10.0.0.0/8.
    tests = [f"{text} RLIKE '^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$'"]
    if whole:
        tests.append(f"STARTSWITH({text}, {text_literal('.'.join(octets[:whole]) + '.')})")
    if bits:
        low = int(octets[whole])
        octet = f"TRY_CAST(SPLIT_PART({text}, '.', {whole + 1}) AS INT)"
        tests.append(f"{octet} BETWEEN {low} AND {low + 2 ** (8 - bits) - 1}")
    return tests[0] if len(tests) == 1 else f"({' AND '.join(tests)})"


def ipv6_condition(column: str, network: IPv6Network) -> str:
    """Whether an IPv6 address, as a text of groups in hexadecimal, is in a network; ``::`` stands for groups of zeros.

    >>> ipv6_condition("ip", IPv6Network("db8::/16")).partition(" RLIKE ")[2][:25]
    "'(?i)^(?:0db8|db8):[0-9a-"
    """
    text = f"CAST({column} AS STRING)"
    first, last = (f"CASE WHEN {name}({text}, '::') THEN '0' ELSE '' END" for name in ("STARTSWITH", "ENDSWITH"))
    bounded = f"CONCAT({first}, {text}, {last})"
    colons = f"LENGTH({bounded}) - LENGTH(REPLACE({bounded}, ':', ''))"
    zeros = f"SUBSTRING('{'0:' * 7}', 1, GREATEST(16 - 2 * ({colons}), 0))"
    before, after = (f"SPLIT_PART({bounded}, '::', {number})" for number in (1, 2))
    exploded = f"CASE WHEN CONTAINS({bounded}, '::') THEN CONCAT({before}, ':', {zeros}, {after}) ELSE {bounded} END"
    groups = network.exploded.partition("/")[0].split(":")
    parts = [_hexadecimal(group, network.prefixlen - 16 * number) for number, group in enumerate(groups)]
    return f"{exploded} RLIKE {text_literal('(?i)^' + ':'.join(parts) + '$')}"


def _hexadecimal(group: str, bits: int) -> str:
    """A regular expression for the groups of four digits with the same first bits, also without zeros at the beginning."""
    if bits <= 0:
        return "[0-9a-f]{1,4}"
    digits = []
    for number, digit in enumerate(group):
        free = 4 - min(max(bits - 4 * number, 0), 4)
        low = int(digit, 16)
        digits.append(f"{low:x}" if free == 0 else "[" + "".join(f"{low + more:x}" for more in range(2**free)) + "]")
    beginnings = [at for at in range(4) if all("0" in digit for digit in digits[:at])]
    return "(?:" + "|".join("".join(digits[at:]) for at in beginnings) + ")"
