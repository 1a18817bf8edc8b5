"""Skills written before a run: read from files, served, governed, and what bad files do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, rows_of, settings_of

from crossmem import experience as ex
from crossmem import study
from crossmem.errors import InputError
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.settings import arm_of
from crossmem.experience.skills import key_of, read_skills
from crossmem.harness.history import memory_at

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.harness.results import Run

pytestmark = pytest.mark.usefixtures("results")

OATS = """---
key: brand / oats
version: 1.0.0
table: celiac_brands
row: oats
value: "Dravunhal VX 26"
---
- For oats in celiac recipes take the brand Dravunhal VX 26.
"""


def remembered(run: Run, name: str, episode: int) -> ExperienceMemory:
    memory = memory_at(run, arm_of(run, name), episode)
    assert isinstance(memory, ExperienceMemory)
    return memory


def with_skills(folder: Path, **given: Any) -> Run:
    stream = {"stream": "phase2_v4", "arms": "A0,skills"}
    return ex.run(**{"mock": True, "model": "haiku", **stream, "skills": str(folder), **given})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "skills"
    made.mkdir()
    (made / "oats.md").write_text(OATS, encoding="utf-8")
    return made


def first(run: Run, arm: str, word: str) -> list[bool]:
    """Whether each episode on `word` was solved at the first try."""
    return [row.first_try for row in rows_of(run) if row.arm == arm and row.drift_row == word]


def test_a_skill_saves_the_first_episode_its_lesson(folder: Path) -> None:
    found = with_skills(folder)
    assert first(found, "A0", "oats")[0] is False
    for arm in ("skills.faithful", "skills.fixed", "skills.fixed.A2"):
        assert first(found, arm, "oats")[0] is True


def test_a_skill_of_another_world_is_never_served_once_governed_and_exposed(folder: Path) -> None:
    old = OATS.replace("1.0.0", "0.9.0").replace("Dravunhal VX 26", "Brand Of Old")
    (folder / "oats.md").write_text(old, encoding="utf-8")
    found = with_skills(folder)
    stale = ex.measures.summary(found)["stale_attempts"]
    sent = {
        arm: sum(
            any(each.entry.value == "Brand Of Old" for each in attempt.carried)
            for attempt in attempts_of(found)
            if attempt.arm == arm
        )
        for arm in found.arms
    }
    assert sent["skills.faithful"] > sent["skills.fixed"] == 1
    assert sent["skills.faithful.A2"] <= 1
    assert sent["skills.fixed.A2"] <= 1
    assert stale["skills.faithful"] > stale["skills.faithful.A2"]


def test_a_text_alone_is_put_before_the_agent_and_costs_its_tokens(folder: Path) -> None:
    lines = [line for line in OATS.splitlines() if not line.startswith(("value", "table", "row"))]
    (folder / "oats.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    found = with_skills(folder, arms="skills.fixed")
    text = ex.reading.read(found, "skills.fixed", episode=_first_oats(found)).blocks["skills.fixed"]
    assert "take the brand Dravunhal VX 26" in text
    assert first(found, "skills.fixed", "oats")[0] is False  # the scripted agent reads no prose


def _first_oats(run: Run) -> int:
    return min(row.index for row in rows_of(run) if row.drift_row == "oats")


def test_a_run_says_which_skills_it_began_with(folder: Path) -> None:
    found = with_skills(folder, arms="A0,skills.fixed")
    described = {arm["name"]: arm.get("skills") for arm in found.config["arms"]}
    assert described["A0"] is None
    assert described["skills.fixed"].startswith("brand / oats (1.0.0 ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- take X\n", "no key"),
        ("---\nversion: 1\n---\n- take X\n", "no key"),
        ("---\nkey: brand / oats\n---\n", "nothing but its key"),
        ("---\nkey: brand / oats\nvalue: X 1\n---\n- take X\n", "value 'X 1' is no JSON"),
        ("---\nkey: brand / oats\nvalue: NaN\n---\n- take X\n", "value 'NaN' is no JSON"),
        ("---\nkey: brand / oats\nkey: brand / rye\n---\n- take X\n", "two lines 'key'"),
        ("---\nkeys: brand / oats\n---\n- take X\n", "unknown line 'keys'; did you mean 'key'"),
        ("---\nkey: brand / rye\n---\n- take X\n", "no task of phase2_v4 has their keys"),
    ],
)
def test_a_skill_that_is_none_stops_the_run_before_it_starts(folder: Path, text: str, why: str) -> None:
    (folder / "oats.md").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=why):
        with_skills(folder)


def test_a_mark_of_the_byte_order_is_no_part_of_a_skill(folder: Path) -> None:
    (plain,) = read_skills(folder).values()
    (folder / "oats.md").write_text(OATS, encoding="utf-8-sig")
    assert read_skills(folder) == {plain.key: plain}


@pytest.mark.parametrize("text", [OATS.replace("Dravunhal", "Another"), None])
def test_a_run_keeps_the_skills_it_had_whatever_becomes_of_the_files(
    folder: Path, text: str | None
) -> None:
    found = with_skills(folder)
    if text is None:
        (folder / "oats.md").unlink()
    else:
        (folder / "oats.md").write_text(text, encoding="utf-8")
    memory = remembered(found, "skills.faithful", 0)
    (skill,) = memory.store.guidance.in_force.values()
    assert skill.lesson is not None
    assert skill.lesson.value == "Dravunhal VX 26"


def test_a_run_does_not_go_on_with_other_skills(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("crossmem.harness.log.RunLog.end", killed)
        with pytest.raises(KeyboardInterrupt):
            with_skills(folder)
    (folder / "oats.md").write_text(OATS.replace("Dravunhal", "Another"), encoding="utf-8")
    with pytest.raises(
        InputError, match=r"resume: skills\.faithful has other skills than when the run"
    ):
        with_skills(folder, resume=True)
    (folder / "oats.md").write_text(OATS, encoding="utf-8")
    assert with_skills(folder, resume=True).length == 24


def test_a_folder_without_skills_or_an_arm_to_read_them_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"skills .*: no skill there"):
        with_skills(tmp_path / "nowhere")
    with pytest.raises(InputError, match="none of the arms is of the component skills"):
        with_skills(folder, arms="A0,cards")


def test_a_skill_that_no_task_has_is_named_and_the_others_serve(folder: Path) -> None:
    (folder / "rye.md").write_text("---\nkey: brand / rye\n---\n- take X\n", encoding="utf-8")
    given = {"mock": True, "arms": "skills", "stream": "phase2_v4", "skills": str(folder)}
    with pytest.warns(UserWarning, match="has the key brand / rye"):
        study.check(settings_of("experience", **given))


def test_the_key_of_a_skill_is_the_key_of_its_entry(folder: Path) -> None:
    (skill,) = read_skills(folder).values()
    assert skill.lesson is not None
    assert key_of(skill.lesson.key) == skill.key


@pytest.mark.parametrize(("left_out", "stays"), [("table", True), ("version", False)])
def test_without_its_table_a_skill_stays_and_without_its_version_the_first_stamp_ends_it(
    folder: Path, left_out: str, stays: bool
) -> None:
    lines = [line for line in OATS.splitlines() if not line.startswith(left_out)]
    (folder / "oats.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    memory = remembered(with_skills(folder, arms="skills.faithful.A2"), "skills.faithful.A2", 4)
    lesson = read_skills(folder)["brand / oats"].lesson
    assert lesson is not None
    assert (lesson in memory._unproven) is stays
