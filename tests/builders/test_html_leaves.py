import base64
import io

import pytest
import torch
from html_cases import ids, leaf_names, tokens_of
from PIL import Image

from hsa_geo.builders import Field, LeafKind, from_html, html
from hsa_geo.builders.tokens import hash_token
from hsa_geo.data import Domain
from hsa_geo.errors import TruncationWarning


def fields(markup: str, row: int = 0, **options) -> dict[str, list[int]]:
    tree = from_html(markup, **options)
    found = {f.name: tokens_of(tree, row, f) for f in Field}
    return {name: tokens for name, tokens in found.items() if tokens}


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<input>", {"TAG": "input", "TYPE": "text"}),
        (
            "<input type=email name=userEMail id=login_user placeholder='Your e-mail' title=Who>",
            {"TAG": "input", "TYPE": "email", "NAME": "user e mail", "ID": "login user",
             "PLACEHOLDER": "your email e mail", "TITLE": "who"},
        ),
        ("<input value='Search here'>", {"TAG": "input", "TYPE": "text", "VALUE": "search here"}),
        ("<input type=submit value=Go>", {"TAG": "input", "TYPE": "submit", "VALUE": "go"}),
        ("<input type=checkbox value=1>", {"TAG": "input", "TYPE": "checkbox"}),
        ("<input type=password value=hunter2>", {"TAG": "input", "TYPE": "password"}),
        ("<input type=image alt=Find>", {"TAG": "input", "TYPE": "image", "ALT": "find"}),
        ("<input aria-label='Full name'>", {"TAG": "input", "TYPE": "text", "LABEL": "full name"}),
        ("<button>Log <b>in</b></button>", {"TAG": "button", "TYPE": "submit",
                                            "VALUE": "log in"}),
        ("<button type=button><img alt=Close></button>", {"TAG": "button", "TYPE": "button",
                                                         "VALUE": "close"}),
        ("<textarea name=body>some text</textarea>", {"TAG": "textarea", "NAME": "body",
                                                     "VALUE": "some text"}),
        ("<select name=c><option>One<optgroup label=x><option>Two</select>",
         {"TAG": "select", "NAME": "c", "OPTION": "one two"}),
        ("<select><option value=a></select>", {"TAG": "select"}),
        ("<img>", {"TAG": "img"}),
        ("<img alt='A cat' title=Tom>", {"TAG": "img", "ALT": "a cat", "TITLE": "tom"}),
        ("<svg aria-label='the logo'></svg>", {"TAG": "svg", "ALT": "the logo"}),
        ("<svg><g><title>Logo</title></g></svg>", {"TAG": "svg", "ALT": "logo"}),
        ("<video title='A film'>old browser</video>", {"TAG": "video", "TITLE": "a film"}),
        ("<iframe title=map>x</iframe>", {"TAG": "iframe", "TITLE": "map"}),
    ],
)  # fmt: skip
def test_fields(markup: str, expected: dict[str, str]) -> None:
    assert fields(markup) == {name: ids(tokens) for name, tokens in expected.items()}
    assert from_html(markup).num_leaves == 1


def test_word_tokens() -> None:
    tree = from_html("<h1>Log-In now</h1>")
    assert tokens_of(tree, 0, Field.WORD) == ids("login log in")
    assert tokens_of(tree, 0, Field.TAG) == tokens_of(tree, 1, Field.TAG) == ids("h1")
    assert (tree.text_index.diff() >= 0).all()


def test_tag_is_that_of_the_nearest_element() -> None:
    tree = from_html("<p>a <b>b <my-x>c</my-x></b> d<a>e</a> <i>f</i>g")
    tags = [tokens_of(tree, row, Field.TAG)[0] for row in range(tree.num_leaves)]
    assert leaf_names(tree) == ["a", "b", "c", "d", "e", "fg"]
    assert tags == [hash_token(tag) for tag in ("p", "b", "my-x", "p", "a", "i")]


@pytest.mark.parametrize(
    "markup",
    [
        "<label for=u>Your name</label><input id=u>",
        "<input id=u><label for=u>Your name</label>",
        "<label>Your name <input></label>",
        "<label for=u>Your <b>name</b> <input id=u></label>",
        "<input id=u><p><label for=u>Your name</label><label for=v>other</label>",
        "<label for=u>Your</label><input id=u><label for=u>name</label>",
    ],
)
def test_labels(markup: str) -> None:
    tree = from_html(markup)
    row = tree.leaf_kind.tolist().index(LeafKind.CONTROL)
    assert tokens_of(tree, row, Field.LABEL) == ids("your name")
    assert leaf_names(tree)[:2] == ["Your", "name"]  # the label's words are leaves as well


def test_hidden_label_is_not_used() -> None:
    assert "LABEL" not in fields("<label for=u hidden>x</label><input id=u>")


def test_names_of_controls() -> None:
    page = "<input name=q><select id=s></select><textarea></textarea><button>Go  on</button>"
    assert leaf_names(from_html(page), LeafKind.CONTROL) == [
        "input[text] q", "select s", "textarea", "button[submit] Go on",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "left_out"),
    [
        (f"<select>{'<option>a b' * 40}</select>", 16),
        (f"<select>{'<option>a b' * 50_000}</select>", 99_936),
        (f"<input placeholder='{'a ' * 65}' title='{'b ' * 66}'>", 3),
        (f"<label>{'a ' * 70}<input></label>", 6),
        (f"<input id=q>{'<label for=q>a b</label>' * 9}", 2),
        (f"<form class='{'a ' * 70}'><input><input></form>", 12),
    ],
)
def test_tokens_left_out_are_counted_once_a_page(page: str, left_out: int) -> None:
    with pytest.warns(TruncationWarning, match=f"^left out {left_out} tokens") as record:
        from_html(page, form_tokens=True)
    assert len(record) == 1


def test_large_images_are_counted(tmp_path, monkeypatch) -> None:
    (tmp_path / "a.png").write_bytes(b"x" * 101)
    monkeypatch.setattr(html, "MAX_IMAGE_BYTES", 100)
    with pytest.warns(TruncationWarning, match="the pixels of 1 images") as record:
        from_html("<img src=a.png>word", base=tmp_path)
    assert len(record) == 1
    from_html("<img src=a.png>word", base=tmp_path, images=False)


@pytest.mark.filterwarnings("ignore::hsa_geo.errors.TruncationWarning")
def test_tokens_of_a_field_are_bounded() -> None:
    many = " ".join(f"w{k}" for k in range(500))
    page = f"<select>{''.join(f'<option>o{k}' for k in range(5000))}</select>"
    assert len(fields(page)["OPTION"]) == 64
    assert len(fields(f"<textarea>{many}</textarea>", field_tokens=10)["VALUE"]) == 10
    assert len(fields(f"<input placeholder='{many}'>", field_tokens=100)["PLACEHOLDER"]) == 100
    assert len(fields(f"<label>{many}<input></label>", row=500)["LABEL"]) == 64


def test_form_tokens_on_request() -> None:
    page = "<form id=login name=f class='big box' action=/do/signIn><p><input></form><input>"
    assert "FORM" not in fields(page)
    assert fields(page, form_tokens=True)["FORM"] == ids("login f big box do sign in")
    assert "FORM" not in fields(page, row=1, form_tokens=True)


def test_hash_buckets() -> None:
    tree = from_html("<p>many words here and <input name=abc>", hash_buckets=3)
    assert int(tree.text_x[:, 0].max()) < 3


# Images ######################################################################


def png(colour: str = "red", size: tuple[int, int] = (16, 8)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def test_an_image_in_the_base_folder(tmp_path) -> None:
    (tmp_path / "a b.png").write_bytes(png(size=(24, 16)))
    tree = from_html("<p>x <img src='a%20b.png?1' alt='A cat'> y", base=tmp_path)
    assert tree.leaf_kind.tolist() == [0, 2] + [3] * 6 + [0]
    assert tree.image_x.shape == (6, 192)
    assert tree.image_x.dtype == torch.uint8
    assert tree.image_index.tolist() == [2, 3, 4, 5, 6, 7]
    assert tree.tree_pos[2:8].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    grid = tree.tree_name.index("patches")
    image = tree.tree_name.index("img")
    assert tree.tree_domain[grid] == Domain.GRID2D
    assert tree.tree_domain[image] == Domain.SEQUENCE
    children = tree.tree_index[1, tree.tree_index[0] == image].tolist()
    assert children == [1, grid]
    assert tokens_of(tree, 1, Field.ALT) == ids("a cat")
    assert not torch.isin(tree.image_index, tree.text_index).any()


@pytest.mark.parametrize(
    "src", ["../a.png", "/etc/passwd", "http://x/a.png", "no.png", "", "t.txt"]
)
def test_an_image_that_cannot_be_read_is_its_alt(tmp_path, src: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "in" / "t.txt").write_bytes(b"text")
    tree = from_html(f"<img src='{src}' alt=cat>", base=tmp_path / "in")
    assert tree.leaf_kind.tolist() == [LeafKind.IMAGE]
    assert tree.image_x.shape == (0, 192)


def test_without_base_no_file_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(png())
    assert from_html("<img src=a.png>").num_leaves == 1
    assert from_html("<img src=a.png>", base=".").num_leaves == 3
    assert from_html("<img src=a.png>", base=".", images=False).num_leaves == 1


def test_images_in_data_uris() -> None:
    tree = from_html(f"<img src='{uri(png())}'><img src='{uri(b'junk')}'>")
    assert tree.leaf_kind.tolist() == [2, 3, 3, 2]
    assert tree.image_x.view(2, 3, 64)[:, 0].eq(255).all()
    assert from_html(f"<img src='{uri(png())}'>", images=False).num_leaves == 1


def test_a_single_patch_lies_on_its_grid() -> None:
    tree = from_html(f"a<img src='{uri(png(size=(8, 8)))}'>")
    assert (tree.tree_domain == Domain.GRID2D).sum() == 1
    assert tree.leaf_kind.tolist() == [0, 2, 3]


def test_patch_size_and_side(tmp_path) -> None:
    (tmp_path / "a.png").write_bytes(png(size=(100, 100)))
    tree = from_html("<img src=a.png>", base=tmp_path, patch_size=4, max_side=12)
    assert tree.image_x.shape == (9, 48)


def test_an_image_shown_twice_is_decoded_once(monkeypatch) -> None:
    from hsa_geo.builders import _page_reader

    calls = []
    real = _page_reader.image_patches
    monkeypatch.setattr(
        _page_reader, "image_patches", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    tree = from_html(f"<img src='{uri(png())}'>" * 3)
    assert len(calls) == 1
    assert tree.image_x.shape[0] == 6


def test_a_drawing_shows_its_texts() -> None:
    tree = from_html("<svg><style>.x{}</style><defs>no</defs><text>two words</text></svg>")
    assert tree.leaf_kind.tolist() == [LeafKind.IMAGE, LeafKind.WORD, LeafKind.WORD]
    assert leaf_names(tree) == ["two", "words"]
