"""The HTML page, in a real browser: a loop must be plain to see, and hovering must tell the call."""

import json
import re

import pytest
from browser import CHROMIUM, Browser

from loopfence import Policy
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import Call, Problems, Turn
from loopfence.replay.page import page
from loopfence.replay.sessions import follow
from loopfence.replay.summary import Totals, Worst

EVIL = "</script><img src=x onerror=alert(1)><!-- & \" ' \u2028"


def calls():
    """A session that loops through three calls, one that works, one that is named to do harm."""
    for n in range(5):
        yield Call("looping/agent-3", "read", {"file": f"notes{n}.md"}, str(n))
    for _ in range(6):
        for tool, result in (("read", "x = 1"), ("edit", "text not found"), ("test", "1 failed")):
            yield Call("looping/agent-3", tool, {"file": "app.py"}, result)
    yield Turn("looping/agent-3")
    yield Call("looping/agent-3", "test", {"file": "app.py"}, "1 passed", outcome="resolved")
    for n in range(12):
        yield Call("working", "fetch", {"page": n}, str(n))
    for n in range(4):
        yield Call(EVIL, EVIL, {"x": EVIL}, "same" if n < 3 else "new")


def made(items, policy=None):
    totals, worst, chosen = Totals(), Worst(50), policy or Policy()

    def done(history):
        totals.add(history)
        worst.add(history)

    follow(items, Backtest(chosen, done, Problems()))
    return page(totals, worst.sessions(), worst.left_out, chosen)


def test_the_page_needs_nothing_but_itself_and_names_no_other_place():
    text = made(calls())
    assert not re.search(r"https?:|src=[\"']|href=|@import|url\(", text.split('id="data"')[0])
    assert "default-src 'none'" in text


def test_what_a_recording_says_cannot_leave_the_block_of_data():
    text = made(calls())
    block = text.split('id="data">')[1].split("</script>")[0]
    assert "<" not in block
    session = next(s for s in json.loads(block)["sessions"] if s["name"] == EVIL)
    assert session["signatures"][0][0] == EVIL
    assert text.count("</script>") == 2


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: the page is only looked at where there is one (apt-get install chromium)")
    folder = tmp_path_factory.mktemp("browser")
    (folder / "page.html").write_text(made(calls()), encoding="utf-8")
    found = Browser(folder / "profile")
    found.open(folder / "page.html")
    yield found
    found.close()


def cells(browser, session):
    """Colour and classes of each call of a session."""
    return browser.run(
        f"""[...document.querySelectorAll("section")[{session}].querySelectorAll("i[data-cell]")]
            .map(box => [getComputedStyle(box).backgroundColor, box.className])"""
    )


def test_every_call_is_a_cell_and_equal_calls_have_one_colour(browser):
    loop = cells(browser, 0)
    assert len(loop) == 24
    grey = {colour for colour, _ in loop[:5]}
    first, second, third = (colour for colour, _ in loop[5:8])
    assert len(grey) == 1
    assert len({first, second, third} | grey) == 4
    assert [colour for colour, _ in loop[5:]] == [first, second, third] * 6 + [third]


def test_the_flags_stand_where_the_guard_would_have_blocked(browser):
    marks = [name for _, name in cells(browser, 0)]
    assert marks[:11] == [""] * 11
    assert marks[11] == "flag first"
    assert marks[12:23] == ["flag"] * 11
    assert marks[23] == ""
    assert [name for _, name in cells(browser, 1)] == ["", "", "flag first", "flag wrong"]
    assert {name for _, name in cells(browser, 2)} == {""}


def test_the_worst_session_is_first_and_its_loop_is_named(browser):
    heads = browser.run("[...document.querySelectorAll('section')].map(s => s.innerText.split('\\n')[0])")
    assert heads[0].startswith("looping/agent-3")
    assert heads[2].startswith("working")
    loops = browser.run("[...document.querySelectorAll('.loop')].map(p => p.textContent)")
    assert loops[0] == "↻ read → edit → test, 6 laps"
    assert len(loops) == 2
    tiles = browser.run("[...document.querySelectorAll('.tile')].map(tile => tile.innerText)")
    assert tiles[0] == "14\ncalls would not have run"
    assert tiles[2] == "92.9 %\nof the flagged calls brought nothing new"
    assert tiles[4] == "1\nof 1 resolved session hit"


def test_hovering_tells_the_call(browser):
    place = browser.run(
        """(() => { const box = document.querySelectorAll("section i[data-cell]")[12].getBoundingClientRect();
                    return [box.left + 5, box.top + 5]; })()"""
    )
    tip = """(() => { const tip = document.getElementById("tip");
                      return getComputedStyle(tip).display === "none" ? "" : tip.innerText; })()"""
    browser.move_mouse(2, 2)
    assert browser.run(tip) == ""
    browser.move_mouse(*place)
    assert browser.run(tip).splitlines() == [
        "call 13: edit",
        '{"file":"app.py"}',
        "equal call 3 of 6",
        "would not have run: repeat, 3 counted; it brought nothing new",
    ]
    browser.move_mouse(2, 2)
    assert browser.run(tip) == ""


def test_nothing_is_asked_of_the_network_and_no_markup_of_a_recording_comes_alive(browser):
    assert [url for url in browser.requests if not url.startswith(("file:", "about:"))] == []
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert EVIL.split("\u2028", maxsplit=1)[0] in browser.run("document.querySelectorAll('section h2')[1].textContent")


def test_the_loop_can_be_seen_in_the_picture(browser):
    browser.move_mouse(2, 2)
    picture = browser.screenshot(height=400)
    row, left, width = browser.run(
        """(() => { const boxes = [...document.querySelectorAll("section")[0].querySelectorAll("i[data-cell]")];
                    const at = boxes.map(box => box.getBoundingClientRect());
                    const middles = at.map(box => Math.round(box.left + box.width / 2));
                    return [Math.round(at[0].top + 12), middles, at[0].width]; })()"""
    )
    drawn = [picture[row][x] for x in left]
    assert drawn[5:8] * 6 == drawn[5:23]
    assert len(set(drawn)) == 4
    # colours of a loop are far apart, and the mark under a blocked call is red
    for one, other in ((5, 6), (6, 7), (5, 7), (0, 5)):
        assert sum(abs(a - b) for a, b in zip(drawn[one], drawn[other], strict=True)) > 120
    red, green, blue = picture[row + 15][left[12]]
    assert red > 180
    assert max(green, blue) < 100
    assert width >= 12


def test_the_page_fits_a_narrow_window(browser):
    browser.resize(390, 800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.resize(1200, 900)
