"""The grammar of data-path actions."""

import pytest

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term, parse


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "push_vlan(vid=2,pcp=0),4,pop_vlan,6",
        "set(ipv4(src=1.1.1.1/255.255.0.0,ttl=63)),7",
        "set(ipv6(src=2001::/ffff::,label=0x3,hlimit=63)),4",
        "set(mpls(label=5/0xfffff,tc=0/0,ttl=63/0xff,bos=1/0)),4",
        "clone(push_vlan(tpid=0x88a8,vid=2,pcp=0),3),5",
        "sample(sample=50.0%,actions(userspace(pid=0,flow_sample(probability=1,collector_set_id=2))))",
        "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=2,rule_cookie=0x1f,max_len=100))",
        "hash(sym_l4(0)),recirc(0x7)",
        "ct(commit,zone=3,mark=0x1/0xffffffff,nat(src=10.0.0.1-10.0.0.9:1-99)),recirc(0x3)",
        "check_pkt_len(size=100,gt(drop),le(set(eth(dst=02:00:00:00:00:01)),2))",
        "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0),pop_nsh()",
        "set(tunnel(tun_id=0x7b,dst=1.2.3.4,ttl=64,tp_dst=4789,flags(df|csum|key))),1",
        "tnl_push(tnl_port(4),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,dl_type=0x0800)),out_port(100))",
        "set(tunnel(dst=1.2.3.4,geneve({class=0xffff,type=0x80,len=4,0xa}),flags(key))),2",
        "trunc(100),3,ct_clear,meter(2),lb_output(3)",
    ],
)
def test_prints_what_it_read(text: str) -> None:
    assert ",".join(str(term) for term in parse(text)) == text


@pytest.mark.parametrize("text", ["", "drop", "  drop\n"])
def test_nothing_to_do(text: str) -> None:
    assert parse(text) == ()


def test_a_term_gives_its_arguments() -> None:
    (term,) = parse("push_vlan(tpid=0x88a8,vid=2)")
    assert (term.name, term.number("tpid"), term.number("vid"), term.number("pcp", 0)) == ("push_vlan", 0x88A8, 2, 0)
    with pytest.raises(ActionSyntaxError, match="lacks pcp=NUMBER"):
        term.number("pcp")


def test_a_bare_number_in_brackets() -> None:
    assert parse("recirc(0x1)") == (Term("recirc", None, (Term("0x1"),)),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("set(ipv4(ttl=63)", "character 17: a bracket does not match"),
        ("3),4", "character 2: a bracket does not match"),
        ("1,,2", "character 3: an action is empty"),
        ("geneve({class=1,3", "character 8: an action is empty"),
    ],
)
def test_an_error_names_the_place(text: str, problem: str) -> None:
    with pytest.raises(ActionSyntaxError) as caught:
        parse(text)
    assert problem in str(caught.value)


def test_numbers_are_checked() -> None:
    with pytest.raises(ActionSyntaxError, match="vid of 'push_vlan\\(vid=x\\)' is 'x'; expected a number"):
        parse("push_vlan(vid=x)")[0].number("vid")
