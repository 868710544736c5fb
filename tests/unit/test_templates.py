"""Templates: what is read, what is refused and how, what is rendered."""

from pathlib import Path

import pytest

from fsctx.errors import InputError
from fsctx.templates.load import (
    builtin_names,
    check_renders,
    load_template,
    parse_template,
    template_source,
    used_columns,
)
from fsctx.templates.model import Message, Template
from fsctx.templates.render import Renderer, render

USER = 'user = """\nHello\n{{ claim }}\n"""\n'
LABELS = '[labels]\nYES = "yes"\nNO = "no"\n'


def parse(text: str) -> Template:
    return parse_template(text, where="t.toml")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_template_is_sound_and_bears_its_name(name: str) -> None:
    template = load_template(name)
    assert template.name == name
    wet, dry = ({"messages": [{"role": "user", "content": claim}]} for claim in ("Water is wet.", "Water is dry."))
    check_renders(template, () if template.messages is None else ("messages",))
    assert render(template, "Water is wet.", wet) != render(template, "Water is dry.", dry)


def test_the_default_template_has_the_labels_of_fever() -> None:
    assert load_template("fever").label_names == ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")


def test_the_liar_template_has_six_grades() -> None:
    assert len(load_template("liar").labels) == 6


def test_label_words_of_a_raw_template_begin_with_a_space() -> None:
    assert all(label.words.startswith(" ") for label in load_template("fever-raw").labels)


def test_a_list_of_labels_makes_each_name_its_own_words() -> None:
    template = parse('labels = ["yes", "no"]\n' + USER)
    assert [(label.name, label.words) for label in template.labels] == [("yes", "yes"), ("no", "no")]


def test_a_file_without_a_name_is_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (USER + LABELS).replace("\n", "\r\n").encode())
    template = load_template(str(path))
    assert template.name == "mine"
    assert render(template, "x", {}).messages[0].content == "Hello\nx"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "t.toml is not TOML"),
        (USER, "labels is missing"),
        ("labels = 3\n" + USER, "labels is 3"),
        ('labels = ["A"]\n' + USER, "at least two"),
        ('labels = ["A", "a"]\n' + USER, "the same but for case"),
        (USER + '[labels]\nA = " "\nB = "x"\n', "t.toml:6: label 'A' has no words"),
        (USER + '[labels]\nA = "x"\nB = "X"\n', "t.toml:7: labels 'A' and 'B' have the same words"),
        (USER + '[labels]\nA = "SUPPORTS"\nB = "SUPPORTS WEAKLY"\n', "'B' could never win"),
        (USER + '[labels]\nA = " yes"\nB = "no"\n', "begin or end with a space"),
        ('usr = "x"\n' + USER + LABELS, "t.toml:1: unknown key usr (did you mean 'user'?)"),
        (USER + LABELS + '[generation]\npatern = "x"\n', "unknown key generation.patern (did you mean 'pattern'?)"),
        (USER + LABELS + '[generation]\npattern = "(x"\n', "is not a regular expression"),
        (USER + LABELS + "[generation]\nmax_new_tokens = 0\n", "max_new_tokens is 0"),
        (USER + LABELS + "[generation]\nmax_new_tokens = true\n", "max_new_tokens is True"),
        (USER + LABELS + "[generation]\ntemperature = nan\n", "temperature is nan"),
        (USER + LABELS + '[generation]\nstop = [""]\n', "stop is ['']"),
        (LABELS, "neither of user and text"),
        ('text = "{{ claim }}"\n' + USER + LABELS, "both of user and text"),
        ('system = "s"\ntext = "{{ claim }}"\n' + LABELS, "t.toml:1: system goes with user"),
        ('user = " "\n' + LABELS, "user is empty"),
        ('user = "hi"\n' + LABELS, "uses no variable"),
        ("user = 3\n" + LABELS, "t.toml:1: user is 3"),
        ('user = """\na\n{{ claim }"""\n' + LABELS, "t.toml:3: user: unexpected '}'"),
        ('user = """a\n{{ claim | shout }}"""\n' + LABELS, "t.toml:2: user: No filter named 'shout'"),
        ('user = "{% include claim %}"\n' + LABELS, "cannot include other files"),
        (USER + LABELS + '[[examples]]\nclaim = "x"\nlabel = "YEP"\n', "example 1 has the unknown label 'YEP'"),
        (USER + LABELS + '[[examples]]\nclaim = "x"\n', "examples[1].label is missing"),
        ('name = "../x"\n' + USER + LABELS, "name is '../x'"),
    ],
)
def test_a_bad_template_is_refused_in_one_line(text: str, said: str) -> None:
    assert said in refusal(text)


def test_words_that_merely_share_letters_are_accepted() -> None:
    template = parse(USER + '[labels]\nA = "true"\nB = "truest"\nC = "mostly true"\n')
    assert template.label_names == ("A", "B", "C")


def test_examples_are_refused_where_the_prompt_needs_a_column() -> None:
    said = refusal('user = "{{ claim }} {{ topic }}"\n' + LABELS + '[[examples]]\nclaim = "x"\nlabel = "YES"\n')
    assert "also uses topic" in said


def test_an_unknown_template_is_refused_with_the_nearest_built_in() -> None:
    with pytest.raises(InputError, match=r"did you mean 'fever'.*built in: fever, "):
        load_template("fevr")


@pytest.mark.parametrize(("content", "said"), [(b"\xff\xfe\x00", "not UTF-8"), (b"#" * (1 << 21), "larger than")])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        load_template(str(path))


def test_a_folder_is_no_template(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_template(str(tmp_path))


def test_the_columns_that_a_template_uses_are_known_without_an_input() -> None:
    text = 'system = "{{ speaker }}"\nuser = "{% for x in topics %}{{ x }}{% endfor %}{{ claim }}"\n'
    assert used_columns(parse(text + LABELS)) == {"speaker", "topics"}


def test_a_missing_column_is_refused_with_the_line_and_the_nearest_column() -> None:
    text = 'user = """\n{{ claim }}\n{{ speker }}"""\n' + LABELS
    with pytest.raises(InputError, match=r"^t\.toml:3: user uses 'speker'.*did you mean 'speaker'.*claim, speaker$"):
        check_renders(parse(text), ["speaker"], source=text, where="t.toml")
    with pytest.raises(InputError, match=r"^template 't': user uses 'speker'"):
        check_renders(parse(text), ["speaker"])


def test_a_variable_called_like_a_builtin_of_jinja_is_a_column() -> None:
    template = parse('user = "{{ claim }} {{ range }}"\n' + LABELS)
    assert used_columns(template) == {"range"}
    assert render(template, "x", {"range": "wide"}).messages[0].content == "x wide"


def test_examples_become_turns_of_a_chat() -> None:
    template = parse('system = "S"\nuser = "Q {{ claim }}"\n' + LABELS + '[[examples]]\nclaim = "a"\nlabel = "NO"\n')
    assert render(template, "b", {}).messages == (
        Message(role="system", content="S"),
        Message(role="user", content="Q a"),
        Message(role="assistant", content="no"),
        Message(role="user", content="Q b"),
    )


def test_examples_of_raw_text_are_text_with_their_words_and_blank_lines() -> None:
    text = 'text = "C: {{ claim }}\\nV:"\n[labels]\nYES = " yes"\nNO = " no"\n[[examples]]\nclaim = "a"\nlabel = "NO"\n'
    assert render(parse(text), "b", {}).text == "C: a\nV: no\n\nC: b\nV:"


@pytest.mark.parametrize(
    "claim", ["{{ 1 + 1 }}", "{% raw %}", "{# x #}", "</s><|im_end|>", "<b>&amp;</b>", "a\x00b", "🙂 שלום"]
)
def test_markup_in_a_claim_is_only_text(claim: str) -> None:
    template = parse('user = "{{ claim }}|{{ topic }}"\n' + LABELS)
    assert render(template, claim, {"topic": claim}).messages[0].content == f"{claim}|{claim}"


def test_control_tokens_of_the_model_are_broken_in_claims_and_columns_only() -> None:
    template = parse('text = "<s>{{ claim }}{{ topic }}"\n' + LABELS)
    renderer = Renderer(template, markers=["<s>", "<<s>>", "x", "<a b>"])
    assert renderer.prompt("<s> <<s>> x <a b>", {"topic": "<s>"}).text == "<s>< s> < < s>> x <a b>< s>"


def test_null_columns_render_as_nothing_and_unused_ones_do_not_matter() -> None:
    template = parse('user = "{{ claim }}[{{ topic }}]"\n' + LABELS)
    assert render(template, "x", {"topic": None, "other": object()}).messages[0].content == "x[]"


@pytest.mark.parametrize("expression", ["topic + 1", "topic.__class__.__mro__", "topic / 0", "topic.pop()"])
def test_what_fails_for_a_row_is_an_input_error(expression: str) -> None:
    template = parse(f'user = "{{{{ claim }}}}{{{{ {expression} }}}}"\n' + LABELS)
    with pytest.raises(InputError, match="cannot be rendered for this row"):
        render(template, "x", {"topic": "text"})


def test_a_column_missing_in_a_row_is_an_input_error() -> None:
    template = parse('user = "{{ claim }}{{ topic }}"\n' + LABELS)
    with pytest.raises(InputError, match="'topic' is undefined"):
        render(template, "x", {})


def test_the_source_of_a_template_is_what_is_parsed() -> None:
    assert parse_template(template_source("fever"), where="fever") == load_template("fever")
