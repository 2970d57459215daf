"""The report on paper: everything that it must name is on the page, and what users wrote is never markup."""

from __future__ import annotations

import json
import re
import struct
import zlib
from contextlib import suppress
from importlib import resources
from typing import Any

import msgspec
import pytest
import typst

from servo.ids import ulid_offset
from servo.lineage.report import Report
from servo.lineage.report_page import picture, typeset, view
from tests.support import audits

WICKED = '#panic("evaluated") $x$ *b* _i_ \\ <l> @r `c` // /* = h ] } " \' & é \u202e'
TEMPLATE = resources.files("servo.lineage").joinpath("report.typ").read_text()


@pytest.fixture(scope="module")
def report() -> Report:
    return audits.example()


def texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for one in value.values() for text in texts(one)]
        case list():
            return [text for one in value for text in texts(one)]
    return [str(value)]


def wide(report: Report, count: int) -> Report:
    """The same, made from so many partitions of three assets."""
    nodes = [
        msgspec.structs.replace(
            report.lineage[0], asset=f"shop/a{n % 3}", materialization=ulid_offset(audits.FIRST, 100 + n), inputs=[]
        )
        for n in range(count)
    ]
    inputs = [
        msgspec.structs.replace(report.inputs[0], asset=node.asset, materialization=node.materialization)
        for node in nodes
    ]
    return msgspec.structs.replace(report, lineage=nodes, inputs=inputs)


def test_names_everything(report: Report) -> None:
    said = "\n".join(texts(view(report)))
    run = report.execution
    assert run is not None
    wanted = [
        *("finance/revenue", "2025-01", "acme/main", audits.STAGED, "v3", "person:ada", report.report_hash),
        *(run.run, "SUCCEEDED", "11 min 0 s", "worker-2", "app-20250115-0001", "manual · person:ada · r1"),
        *("2025-01-15 12:06:00.123 UTC", "2025-01-15 12:17:00.123 UTC", "2025-01-15 13:40:00.123 UTC"),
        *(f"{300:064x}", "1,000", "made current again by a rollback", "the newer one is wrong"),
        *(one for node in report.lineage for one in (node.materialization, node.content_hash or "", node.asset)),
        *("not_null(amount)", "3 nulls", "row_count", "11 rows, wanted 12"),
        *("checkpoint-1", audits.NASTY, "APPROVED", "four eyes", "to cfo", "person:grace", f"agreed; {audits.NASTY}"),
        *(one for event in report.proof.events for one in (event.event_id, event.chain_hash, event.event_type)),
        *(report.proof.head.chain_hash, report.proof.head.event_id, "position 21"),
    ]
    assert [one for one in wanted if one not in said] == []
    assert [name for name in view(report) if f"d.{name}" not in TEMPLATE] == [], "not on the page"


def test_is_set_as_pages_with_sections_and_colours(report: Report) -> None:
    [pdf] = typeset(report)
    assert pdf.startswith(b"%PDF-")
    pages = typeset(report, image="png")
    assert len(pages) == 3
    for page in pages:
        width, height = struct.unpack(">II", page[16:24])
        assert (width, height) == (909, 1286)
    pixels = zlib.decompress(data(pages[0]))
    assert len(set(pixels)) > 100
    found = typst.query(TEMPLATE.encode(), "heading", sys_inputs={"report": json.dumps(view(report))})
    assert [one["body"]["text"] for one in json.loads(found)] == [
        "Execution",
        "Output",
        "Inputs",
        "Lineage",
        "Checks",
        "Approvals",
        "Ledger proof",
    ]


def data(png: bytes) -> bytes:
    """The compressed pixels of an image."""
    found, offset = b"", 8
    while offset < len(png):
        length, kind = struct.unpack(">I4s", png[offset : offset + 8])
        found += png[offset + 8 : offset + 8 + length] if kind == b"IDAT" else b""
        offset += 12 + length
    return found


def test_what_users_wrote_is_text(report: Report) -> None:
    """Every text of the page at once: if any were read as markup, Typst would stop at the panic."""

    def wicked(value: Any) -> Any:
        match value:
            case dict():
                return {name: one if name in ("tone", "kind") else wicked(one) for name, one in value.items()}
            case list():
                return [wicked(one) for one in value]
            case str():
                return WICKED
        return value

    shown = wicked(view(report))
    made = typst.compile(
        TEMPLATE.encode(), format="pdf", ignore_system_fonts=True, sys_inputs={"report": json.dumps(shown)}
    )
    assert made
    assert typeset(msgspec.structs.replace(report, asset=WICKED, actor=WICKED, code_version=WICKED))


def test_a_thousand_inputs_are_a_few_pages(report: Report) -> None:
    many = wide(report, 1000)
    shown = view(many)
    assert (len(shown["inputs"]["rows"]), shown["inputs"]["more"], shown["inputs"]["total"]) == (60, 940, 1000)
    drawn = shown["picture"]
    assert [box["lines"][0] for box in drawn["boxes"] if box["stack"]] == [
        "334 versions",
        "333 versions",
        "333 versions",
    ]
    assert len(drawn["lines"]) == 3
    assert len(typeset(many, image="png")) < 10


def test_the_picture_fits_its_page(report: Report) -> None:
    for one in (report, wide(report, 7), wide(report, 200), msgspec.structs.replace(report, lineage=[], inputs=[])):
        drawn = picture(one)
        for box in drawn["boxes"]:
            assert 0 <= box["x"] <= box["x"] + box["w"] <= drawn["width"] + 0.01
            assert 0 <= box["y"] <= box["y"] + box["h"] <= drawn["height"] + 0.01
        assert [box["title"] for box in drawn["boxes"] if box["kind"] == "output"] == ["finance/revenue"]
        assert drawn["height"] < 120
    deep = [msgspec.structs.replace(report.lineage[0], depth=depth) for depth in range(1, 30)]
    boxes = picture(msgspec.structs.replace(report, lineage=deep))["boxes"]
    assert len({box["x"] for box in boxes}) == 5


def test_no_name_is_cut_in_the_picture(report: Report) -> None:
    name = "warehouse_of_the_company/customer_lifetime_value_by_region.daily_snapshot_2025"
    nodes = [msgspec.structs.replace(node, asset=name) for node in report.lineage]
    drawn = picture(msgspec.structs.replace(report, asset=name, lineage=nodes))
    assert {box["title"].replace("\n", "") for box in drawn["boxes"]} == {name}
    assert all(len(line) <= box["w"] / 1.75 for box in drawn["boxes"] for line in box["title"].split("\n"))
    assert typeset(msgspec.structs.replace(report, asset=name, lineage=nodes))
    for a in drawn["boxes"]:
        for b in drawn["boxes"]:
            apart = a["x"] != b["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
            assert apart or a is b, "boxes lie on each other"


def test_what_is_copied_from_the_page_is_what_it_says(report: Report) -> None:
    """No character stands between those of an id: fonts of the page have none for a zero-width space."""
    [pdf] = typeset(wide(report, 40))
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    inflated = []
    for stream in streams:
        with suppress(zlib.error):
            inflated.append(zlib.decompress(stream))
    maps = [one for one in inflated if b"beginbfchar" in one]
    assert maps, "what characters the glyphs stand for"
    # A glyph stands for one character or several, and a stretch of the page may say its text: both in UTF-16.
    said = [text for one in maps for text in re.findall(rb"<[0-9A-F]{4}> <([0-9A-F]+)>", one)]
    said += [text for one in inflated for text in re.findall(rb"/ActualText ?<FEFF([0-9A-F]+)>", one, re.IGNORECASE)]
    assert not [text for text in said if "\u200b" in bytes.fromhex(text.decode()).decode("utf-16-be")]


def test_the_lines_are_what_was_read(report: Report) -> None:
    """Three files, three cleaned days, one month: each day from its file, the month from all days."""
    assert len(picture(report)["lines"]) == 6
