"""`loopfence demo`: what it tells is what happened, it reads well in a pipe, and it leaves nothing running."""

import os
import pty
import re
import signal
import subprocess
import time

import pytest
from command import COMMAND, environment

from loopfence import LoopGuard

STORY = """\
session demo-SSSS, its last 20 calls; blocked at 3 repeats without progress

1  A loop that no worker can see
   Whichever worker is free makes the agent's next call.

   worker      call                             result   total  repeats  verdict
   w1          find_orders {"customer":"C-17"}  []           1  ●○○  1  ALLOW
   w2          get_customer {"id":"C-17"}       Ann Lee      1  ●○○  1  ALLOW
   w3          find_orders {"customer":"C-17"}  []           2  ●●○  2  ALLOW
   w4          read_rules {"topic":"refund"}    30 days      1  ●○○  1  ALLOW
   w2          find_orders {"customer":"C-17"}  not run      3  ●●●  3  BLOCK

   ╭─ the model gets, in place of a result ──────────────────────────────────╮
   │ This call was not run. 'find_orders' was called 3 times with the same   │
   │ arguments without progress (limit 3 in the last 20 calls). Calling it   │
   │ again will not help: use the result you have, change the arguments, try │
   │ another way, or say what you are missing.                               │
   ╰─────────────────────────────────────────────────────────────────────────╯

   No worker made that call more than once; the window they share has all 3.
   The agent reads that, tries something else, and is let through:
   w3          find_orders {"mail":"ann@x.org"} [8812]       1  ●○○  1  ALLOW

2  Progress is no loop
   The agent asks for a job's state: the same call, but new results.

   worker      call                             result   total  repeats  verdict
   w1          job_state {"job":7}              queued       1  ●○○  1  ALLOW
   w2          job_state {"job":7}              20 %         2  ●●○  2  ALLOW
   w3          job_state {"job":7}              55 %         3  ●●○  2  ALLOW
   w4          job_state {"job":7}              90 %         4  ●●○  2  ALLOW
   w1          job_state {"job":7}              done         5  ●●○  2  ALLOW

   5 equal calls, 0 blocked: a new result is progress.

3  All at once
   Every worker makes the same call at the same instant.

   worker      call                             result   total  repeats  verdict
   wN          find_refund {"order":8812}       []           1  ●○○  1  ALLOW
   wN          find_refund {"order":8812}       []           2  ●●○  2  ALLOW
   wN          find_refund {"order":8812}       not run      3  ●●●  3  BLOCK
   wN          find_refund {"order":8812}       not run      4  ●●●  4  BLOCK

   2 ran, 2 did not, whoever came first: each call is one atomic step.

"""
IN_MEMORY = """\
Over a Redis the workers are processes, on any number of machines
   # any Redis from 6.2 on, or Valkey
   loopfence demo --url redis://localhost:6379/0

and the session is a few keys, which redis-cli shows
   # the window, oldest first: call, then its time (in microseconds)
   redis-cli ZRANGE 'loopfence:{demo-SSSS}:calls' 0 -1 WITHSCORES
   # equal calls in the window
   redis-cli HGETALL 'loopfence:{demo-SSSS}:counts'
   # seconds until the session is gone
   redis-cli TTL 'loopfence:{demo-SSSS}:calls'
"""
ROW = re.compile(r"   w(?P<worker>\d+) (?P<pid>\d+) +(?P<tool>\w+) \{")


def masked(text):
    """The story without the session's name, the pids, and who won the race."""
    text = re.sub(r"demo-[0-9a-f]{4}", "demo-SSSS", text)
    text = re.sub(r"(?m)^(   w\d+)( \d+)", lambda row: row[1] + " " * len(row[2]), text)
    return re.sub(r"(?m)^   w\d(.*find_refund)", r"   wN\1", text)


def rows(text):
    return [match.groupdict() for match in ROW.finditer(text)]


def test_without_a_url_threads_over_memory_tell_the_story(run):
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert masked(out) == "loopfence: 4 worker threads, one window in memory\n" + STORY + IN_MEMORY


def test_over_redis_processes_tell_the_same_story(run, newest_server):
    code, out, err = run("demo", "--url", newest_server.url)
    assert (code, err) == (0, "")
    session = re.search(r"demo-[0-9a-f]{4}", out)[0]
    cli = f"redis-cli -p {newest_server.port}"
    assert masked(out) == (
        f"loopfence: 4 worker processes, one window in {newest_server.url}\n"
        f"{STORY}"
        "Look at it yourself: the session stays for 10 min\n"
        "   # the window, oldest first: call, then its time (in microseconds)\n"
        f"   {cli} ZRANGE 'loopfence:{{demo-SSSS}}:calls' 0 -1 WITHSCORES\n"
        "   # equal calls in the window\n"
        f"   {cli} HGETALL 'loopfence:{{demo-SSSS}}:counts'\n"
        "   # seconds until the session is gone\n"
        f"   {cli} TTL 'loopfence:{{demo-SSSS}}:calls'\n"
        "   # all of it as a table\n"
        f"   loopfence show demo-SSSS --url {newest_server.url}\n"
    )
    made = rows(out)
    assert len({row["pid"] for row in made}) == 4
    assert len({(row["worker"], row["pid"]) for row in made}) == 4
    with LoopGuard(newest_server.url, on_outage="raise", timeout=5.0) as guard:
        snapshot = guard.session(session).snapshot()
    assert [call.tool for call in snapshot.calls] == [row["tool"] for row in made]
    assert sorted(snapshot.counts.values()) == [1, 1, 1, 3, 4, 5]
    assert 0 < snapshot.ttl <= 600


def test_the_url_of_the_environment_is_used_and_its_policy_does_not_change_the_story(run, newest_server):
    url = f"{newest_server.url}?threshold=7&window=9&enforce=false&ceiling=2&timeout=10"
    out = run("demo", LOOPFENCE_URL=url).out
    assert masked(out).startswith(f"loopfence: 4 worker processes, one window in {url}\n{STORY}")


@pytest.mark.parametrize(("workers", "racers", "most"), [(2, 4, "twice"), (3, 4, "once"), (16, 16, "once")])
def test_any_number_of_workers_lets_two_of_the_race_through(run, workers, racers, most):
    out = run("demo", "--workers", str(workers)).out
    assert out.startswith(f"loopfence: {workers} worker threads, ")
    assert f"No worker made that call more than {most}; the window they share has all 3." in out
    assert f"   2 ran, {racers - 2} did not, " in out
    race = re.findall(r"find_refund .* (\d+)  [●○]+ +(\d+)  (\w+)", out)
    assert race == [(str(number), str(number), "ALLOW" if number < 3 else "BLOCK") for number in range(1, racers + 1)]


def test_a_password_is_not_printed_and_its_place_is_said(run, start_server):
    server = start_server(password="sesame")
    code, out, err = run("demo", "--url", server.url)
    assert (code, err) == (0, "")
    assert "sesame" not in out
    assert out.startswith("loopfence: 4 worker processes, one window in Redis\n")
    session = re.search(r"demo-[0-9a-f]{4}", out)[0]
    assert "   # once: export REDISCLI_AUTH=<the password>\n" in out
    assert out.endswith(f"   # all of it as a table, with LOOPFENCE_URL set\n   loopfence show {session}\n")


def test_ctrl_c_ends_it_and_its_workers_without_a_traceback(newest_server):
    demo = subprocess.Popen(
        [COMMAND, "demo", "--url", newest_server.url, "--workers", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
        start_new_session=True,
    )
    # The first call is made: all workers are up.
    line = next(line for line in demo.stdout if line.startswith("   w1 "))
    worker = int(line.split()[1])
    os.killpg(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_on_a_terminal_it_has_colour_and_takes_time_to_be_read():
    leader, terminal = pty.openpty()
    start = time.monotonic()
    demo = subprocess.Popen([COMMAND, "demo"], stdout=terminal, stderr=terminal, env=environment(TERM="xterm-256color"))
    os.close(terminal)
    seen = b""
    while True:
        try:
            seen += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    assert demo.wait(timeout=30) == 0
    text = seen.decode()
    assert re.search(r"\x1b\[1;31mBLOCK\x1b\[0m", text)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")
    assert STORY.partition("\n")[2] in masked(plain)
    # 15 calls, each followed by a moment in which to read it.
    assert time.monotonic() - start > 15 * 0.1
