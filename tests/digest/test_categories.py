"""Tests of assigning known call stacks of a server and of PostgreSQL to kinds of work."""

import pytest

from runner.digest.categories import UNKNOWN, the_rules

INSERT = "main;PostmasterMain;[postgres];PostgresMain;PortalRun;[postgres];standard_ExecutorRun"
STACKS = {
    f"{INSERT};[postgres]": "executor",
    f"{INSERT};heap_insert;[postgres]": "storage and locks",
    f"{INSERT};heap_insert;XLogInsert;XLogInsertRecord;[postgres]": "WAL",
    f"{INSERT};heap_insert;XLogInsert;__memmove_avx512_unaligned_erms": "WAL",
    "main;PostmasterMain;[postgres];PostgresMain;GetCachedPlan;[postgres]": "parser and planner",
    "main;PostmasterMain;[postgres];PostgresMain;pg_parse_query;raw_parser;base_yyparse": (
        "parser and planner"
    ),
    "main;PostmasterMain;[postgres];PostgresMain;secure_read;__recv;tcp_recvmsg_[k]": (
        "kernel network"
    ),
    "main;PostmasterMain;[postgres];PostgresMain;pq_getmessage": "client protocol",
    "[postgres]": UNKNOWN,
}


@pytest.mark.parametrize(("stack", "kind"), STACKS.items())
def test_postgres_has_rules_of_its_own(stack, kind):
    assert the_rules("database").category(stack.split(";")) == kind


def test_a_server_s_functions_are_not_taken_for_those_of_postgres():
    assert the_rules().category(["start", "heap_insert"]) == UNKNOWN
    assert the_rules("database").category(["main", "serde_json::to_vec"]) == UNKNOWN
