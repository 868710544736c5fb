"""INPUT arguments → files, and what each format gives."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from planning import read_claims

from fsctx.coordinator.plan.inputs import Compression, Format, find_sources
from fsctx.errors import InputError

HARD = [
    "plain",
    'with "quotes" and, commas',
    "two\nlines",
    "tabs\tinside",
    "İstanbul'da ışık, 東京タワー, 🙂 and \u2028 a separator",
    "  spaces around  ",
    "NA",
]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",", end: str = "\r\n") -> bytes:
    def cell(value: Any) -> str:
        return '"' + str(value).replace('"', '""') + '"'

    lines = [delimiter.join(rows[0]), *(delimiter.join(cell(v) for v in row.values()) for row in rows)]
    return (end.join(lines) + end).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_array(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows, ensure_ascii=False, indent=1).encode()


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "x.csv": as_csv,
    "x.parquet": as_parquet,
    "x.jsonl": as_lines,
    "x.ndjson": as_lines,
    "x.json": as_array,
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.compress(data),
}


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, packed: str) -> None:
    if name == "x.parquet" and packed:
        pytest.skip("Parquet compresses within")
    rows = [{"id": i, "claim": claim, "label": "SUPPORTS"} for i, claim in enumerate(HARD)]
    path = tmp_path / (name + packed)
    path.write_bytes(PACKERS[packed](WRITERS[name](rows)))
    table = read_claims(path)
    assert table.column("claim").to_pylist() == HARD
    assert table.column("id").to_pylist() == list(range(len(HARD)))
    assert set(table.column("label").to_pylist()) == {"SUPPORTS"}


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.json"])
def test_a_byte_order_mark_is_not_part_of_the_data(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + WRITERS[name]([{"claim": "a", "id": 1}]))
    assert read_claims(path).column("claim").to_pylist() == ["a"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_has_one_claim_a_line_and_empty_ones_stay(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(end.join(["one", "", 'a "quote', "tab\there", "last"]).encode())
    assert read_claims(path).column("claim").to_pylist() == ["one", "", 'a "quote', "tab\there", "last"]


def test_tsv_keeps_stray_quotes_and_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text('id\tclaim\n1\t"open\n2\tb\n3\t"whole"\n')
    assert read_claims(path).column("claim").to_pylist() == ['"open', "b", '"whole"']


def test_tsv_with_quoting_on_takes_the_quotes_away(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text('id\tclaim\n1\t"two\nlines"\n2\tb\n')
    assert read_claims(path, is_quoted=True).column("claim").to_pylist() == ["two\nlines", "b"]


def test_csv_with_quoting_off_takes_every_line_for_a_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('claim\n"a\nb"\n')
    assert read_claims(path, is_quoted=False).column("claim").to_pylist() == ['"a', 'b"']


def test_a_file_without_header_has_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("1.json\ttrue\tSays that one and one are two in the end\n2.json\tfalse\tb\n")
    table = read_claims(path, claim_column="column_3", label_column="column_2", id_column="column_1")
    assert table.column("id").to_pylist() == ["1.json", "2.json"]
    assert table.column("label").to_pylist() == ["true", "false"]


def test_naming_a_numbered_column_says_that_there_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("SUPPORTED,Paris is large\nREFUTED,Rome is small\n")
    assert read_claims(path, claim_column="column_2").num_rows == 2


def test_naming_a_cell_of_the_first_row_says_that_it_is_the_header(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,the statement that is to be verified\n2,Rome is small\n")
    assert read_claims(path, claim_column="the statement that is to be verified").num_rows == 1


def test_a_file_without_header_shows_its_first_row_where_no_claim_column_is_known(tmp_path: Path) -> None:
    message = refused(tmp_path, "x.tsv", b"1.json\ttrue\tSays that one and one are two in the end\n")
    assert "column_2 'true', column_3 'Says that one and one ar'" in message


def test_a_header_may_stand_below_empty_lines_and_hold_a_line_end(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('\n\n"the\nid",claim\n1,a\n\n2,b\n')
    table = read_claims(path)
    assert table.column("claim").to_pylist() == ["a", "b"]
    assert table.column("input_the\nid").to_pylist() == ["1", "2"]


def test_json_scalars_become_text_and_nested_values_json(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"claim": "a", "label": true, "evidence": [[1, "x", null]]}\n'
        '{"claim": null, "label": 1, "evidence": {"k": 2}, "late": "l"}\n'
    )
    table = read_claims(path)
    assert table.column("claim").to_pylist() == ["a", None]
    assert table.column("label").to_pylist() == ["true", "1"]
    assert table.column("input_evidence").to_pylist() == ['[[1,"x",null]]', '{"k":2}']
    assert table.column("input_late").to_pylist() == [None, "l"]


def test_parquet_keeps_the_types_of_other_columns_and_writes_nested_ones_as_json(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table(
        {
            "claim": pa.array(["a", "a"]).dictionary_encode(),
            "label": pa.array([True, None]),
            "n": pa.array([1.5, 2.5]),
            "deep": [{"k": ["é"]}, None],
            "none": pa.nulls(2),
        }
    )
    pq.write_table(table, path)
    shard = read_claims(path)
    assert shard.column("label").to_pylist() == ["true", None]
    assert shard.column("input_n").to_pylist() == [1.5, 2.5]
    assert shard.column("input_deep").to_pylist() == ['{"k": ["é"]}', None]
    assert shard.column("input_none").to_pylist() == [None, None]


def test_files_of_a_folder_and_of_a_glob_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "notes.md", ".hidden.txt"):
        (tmp_path / name).write_text(name)
    assert [s.path.name for s in find_sources([str(tmp_path)])] == ["a.txt", "b.txt"]
    assert [s.path.name for s in find_sources([str(tmp_path / "[ab].txt")])] == ["a.txt", "b.txt"]


def test_a_name_full_of_pattern_characters_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "what's [1] *?.jsonl"
    path.write_bytes(as_lines([{"claim": "a"}]))
    assert read_claims(path).num_rows == 1


def test_name_and_compression_tell_the_format(tmp_path: Path) -> None:
    path = tmp_path / "X.JSONL.GZ"
    path.write_bytes(gzip.compress(b'{"claim": "a"}'))
    (source,) = find_sources([str(path)])
    assert (source.format, source.compression) == (Format.JSON, Compression.GZIP)


def refused(tmp_path: Path, name: str, content: bytes, **options: Any) -> str:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_claims(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.jsonl", "x.txt", "x.tsv.gz"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    assert "is empty" in refused(tmp_path, name, b"")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"claim,label\n"),
        ("x.json", b"[]"),
        ("x.jsonl", b"\n\n"),
        ("x.csv", b"\n\n"),
        ("x.parquet", as_parquet([])),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    assert "no rows" in refused(tmp_path, name, content)


def test_a_compressed_file_of_nothing_is_refused(tmp_path: Path) -> None:
    assert "holds nothing" in refused(tmp_path, "x.txt.gz", gzip.compress(b""))


@pytest.mark.parametrize(
    ("name", "content", "seen"),
    [
        ("x.csv", as_parquet([{"claim": "a"}]), "Parquet"),
        ("x.parquet", b"claim\na\n", "begins with 'claim"),
        ("x.jsonl", b"claim,label\na,b\n", "begins with 'claim"),
        ("x.csv", b'{"claim": "a"}\n', "JSON"),
        ("x.txt", b'{"claim": "a"}\n', "JSON"),
        ("x.jsonl", gzip.compress(b"{}", mtime=0), "gzip"),
        ("x.jsonl.gz", b'{"claim": "a"}', "JSON"),
        ("x.csv", b"PK\x03\x04....", "zip archive"),
        ("x.csv", "claim\n".encode("utf-16"), "UTF-16"),
        ("x.txt", b"a\0b", "binary"),
        ("x.csv", b"id\tclaim\n1\ta\n", "tabs"),
        ("x.csv", b"id;claim\n1;a\n", "semicolons"),
    ],
)
def test_content_of_another_format_than_the_name_is_refused_and_named(
    tmp_path: Path, name: str, content: bytes, seen: str
) -> None:
    assert seen in refused(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("x.csv", b"id,claim\n1,a\n2,b\xe9\n", "byte 17 (line 3, value 0xe9)"),
        ("x.tsv", b"id\tclaim\n1\ta\n2\tb\xe9\n", "byte 17 (line 3, value 0xe9)"),
        ("x.txt", b"a\nb\nc \xff\n", "byte 7 (line 3, value 0xff)"),
        ("x.jsonl", b'{"claim": "a"}\n{"claim": "\xe9"}\n', "byte 27 (line 2, value 0xe9)"),
    ],
)
def test_what_is_not_utf8_is_named_by_its_place(tmp_path: Path, name: str, content: bytes, place: str) -> None:
    assert place in refused(tmp_path, name, content)


def test_parquet_strings_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"claim": bad}), path)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_claims(path)


def test_json_that_is_damaged_is_named_by_its_line(tmp_path: Path) -> None:
    assert "line 2" in refused(tmp_path, "x.jsonl", b'{"claim": "a"}\n{"claim": "b"\n{"claim": "c"}\n')


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    assert "has an empty key" in refused(tmp_path, "x.jsonl", b'{"claim": "a", "": "b"}\n')


def test_a_long_text_in_the_first_rows_of_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("claim,label\n" + "word " * 60_000 + ",A\n")
    assert [len(claim) for claim in read_claims(tmp_path / "x.csv")["claim"].to_pylist()] == [300_000]


def test_json_that_is_nested_beyond_all_reason_is_refused(tmp_path: Path) -> None:
    assert "line 1: maximum recursion" in refused(tmp_path, "x.jsonl", b'{"claim": %s}\n' % (b"[" * 9999 + b"]" * 9999))


@pytest.mark.parametrize("content", [b'{"claim": "a"}\n[1]\n', b"[1, 2]"])
def test_json_values_that_are_no_objects_are_refused(tmp_path: Path, content: bytes) -> None:
    assert "no JSON objects" in refused(tmp_path, "x.json", content)


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"claim": "%d"}\n' % (i * 7919) for i in range(5000)))
    refused(tmp_path, "x.jsonl.gz", whole[: len(whole) // 2])


def test_a_row_of_another_length_says_which_and_what_to_try(tmp_path: Path) -> None:
    message = refused(tmp_path, "x.tsv", b"id\tclaim\n1\ta\n2\tb\tc\n")
    assert "Row #3" in message
    assert "--quoting on" in message


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "more than one column named claim" in refused(tmp_path, "x.csv", b"claim,claim\na,b\n")


@pytest.mark.parametrize("given", ["nowhere.jsonl", "nothing-*.csv"])
def test_an_input_that_is_not_there_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match=r"does not exist|no file matches"):
        find_sources([str(tmp_path / given)])


def test_a_folder_without_claims_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file of a known format"):
        find_sources([str(tmp_path)])


def test_a_name_that_tells_no_format_is_refused(tmp_path: Path) -> None:
    assert "does not tell its format" in refused(tmp_path, "x.dat", b"a")


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match="named twice"):
        find_sources([str(tmp_path), str(tmp_path / "a.txt")])
