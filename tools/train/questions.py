"""Short questions and answers built from the collected documents themselves: NAME lines, synopses
and docstrings.
"""

import ast
import re

KNOWN = set(
    """ls cat grep sed awk gawk find tar cp mv rm mkdir rmdir chmod chown ln touch echo pwd head
    tail sort uniq wc cut tr tee xargs du df ps kill top free mount umount less more man ssh scp
    ssh-keygen rsync curl wget git git-commit git-add git-clone git-push git-pull git-log git-diff
    git-status git-branch git-checkout git-merge git-rebase git-stash git-init git-tag git-reset
    make diff patch gzip bzip2 xz zip unzip bash date cal sleep seq printf test expr dd stat file
    which env nohup nice time chroot su sudo passwd useradd crontab systemctl journalctl ip ping ss
    tcpdump nano screen tmux jq sqlite3 bc strace gdb perl apt apt-get dpkg hostname uname id whoami
    basename dirname realpath md5sum sha256sum split paste join comm fold fmt nl od hexdump lsblk
    fdisk mkfs printf fork execve open read write malloc free printf socket select poll mmap
    pthread_create
    """.split()
)
VERBS = set("""add adjust allow analyze append apply archive arrange assign attach block break build
    calculate call cancel change check clean clear clone close combine compare compile compress
    compute concatenate configure connect control convert copy correct count create cut decode
    decompress decode define delete describe determine disable display divide draw dump edit enable
    encode encrypt enter estimate evaluate examine execute expand extract fetch filter find fix
    flush fold force format generate get give group handle identify ignore import indicate
    initialize insert install interpret invoke iterate join keep kill limit link list load locate
    lock log look make manage manipulate map mark match measure merge modify monitor mount move
    multiply obtain open operate output override parse paste perform place poll prepare print
    process produce provide query raise read rebuild receive record redirect reduce refresh register
    release remove rename reorder repair repeat replace report represent request reset resize
    resolve restore retrieve return reverse rewrite rotate round run save scan schedule search
    select send serialize set show shut shuffle sleep sort split start stop store strip suspend swap
    switch synchronize tell terminate test trace track transfer translate truncate try turn unlock
    unmount unpack update use validate verify view visit wait watch wrap write yield
    """.split())
SECTIONS = {
    "1": "command",
    "8": "administration command",
    "2": "system call",
    "3": "library function",
    "5": "file format",
    "7": "topic",
    "4": "device",
    "6": "program",
}
SMALL_TALK = [
    (
        ["hello", "hi", "hey", "hello there", "good morning"],
        "Hello! Ask me about a command or a Python function.",
    ),
    (
        ["who are you?", "what are you?", "what is your name?", "tell me about yourself"],
        "I am a very small language model trained on manual pages and Python documentation. "
        "I often make things up.",
    ),
    (
        ["what can you do?", "help", "what can I ask?", "how can you help me?"],
        "I can say what a command or a Python function does, in one or two sentences.",
    ),
    (["thanks", "thank you", "thanks!", "ok thanks"], "You are welcome."),
    (["bye", "goodbye", "see you"], "Goodbye!"),
]


def third_person(verb):
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def sentence(text):
    """The first sentence of a paragraph, on one line."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.split(r"(?<=[a-z0-9)\]'`])\.\s", text)[0].rstrip(" .:;")
    return text if 8 < len(text) < 240 else None


def predicate(name, text):
    """ "print lines" -> "grep prints lines"; "a shell" -> "bash is a shell"; else "name: text"."""
    first, _, rest = text.partition(" ")
    verb = first.lower()
    if verb in VERBS and rest:
        return f"{name} {third_person(verb)} {rest}."
    if third_person(verb[:-1]) == verb and verb[:-1] in VERBS:
        return f"{name} {verb} {rest}."
    if verb in ("a", "an", "the"):
        return f"{name} is {verb} {rest}."
    return f"{name}: {text}."


def ask(rng, name, kind):
    """One phrasing of "what does it do"."""
    form = rng.choice(
        [
            "what does {n} do",
            "what does {n} do",
            "what is {n}",
            "what is {n} for",
            "explain {n}",
            "what does the {n} {k} do",
            "tell me about {n}",
            "describe {n}",
            "what's {n}",
            "{n}",
            "can you explain {n}",
            "what do I use {n} for",
            "define {n}",
        ]
    )
    text = form.format(n=name, k=kind)
    if rng.random() < 0.35:
        text = text[0].upper() + text[1:] if name[0] != text[0] else text
    return text + rng.choice(["?", "?", "", "?" if form.startswith(("what", "can")) else "."])


def manual_parts(document):
    """(names, one-line description, section kind, synopsis, first paragraph) of a rendered page, or
    None.
    """
    name = re.search(r"^NAME\n((?: +.*\n)+)", document["text"], re.M)
    section = re.search(r"/man/man(\d)/", document["path"])
    if not name or not section:
        return None
    line = re.sub(r"\s+", " ", name[1]).strip()
    names, _, description = re.sub(r"\s[-–—]+\s", "\0", line, count=1).partition("\0")
    if not description:
        return None
    synopsis = re.search(r"^SYNOPSIS\n((?: +.*\n)+)", document["text"], re.M)
    paragraph = re.search(r"^DESCRIPTION\n((?: +.*\n)+)", document["text"], re.M)
    return (
        [n.strip() for n in names.split(",")],
        sentence(description),
        SECTIONS.get(section[1], "page"),
        synopsis and synopsis[1],
        paragraph and re.sub(r"\s+", " ", paragraph[1]).strip(),
    )


def spoken(name):
    return name.replace("git-", "git ") if name.startswith("git-") else name


def manual_turns(document, rng):
    parts = manual_parts(document)
    if not parts or not parts[1]:
        return
    names, description, kind, synopsis, paragraph = parts
    for name in names[:3]:
        known = name in KNOWN and kind in (
            "command",
            "administration command",
            "system call",
            "library function",
        )
        shown = spoken(name)
        answer = predicate(shown, description)
        for _ in range(40 if known else 4):
            yield ask(rng, rng.choice([shown, name]), kind), answer
        verb = description.split(" ")[0].lower()
        for _ in range(6 if known else 1):
            if verb in VERBS:
                yield (
                    f"how do I {description[0].lower() + description[1:]}" + rng.choice(["?", ""]),
                    f"Use {shown}: it {third_person(verb)} {description.partition(' ')[2]}.",
                )
            if synopsis and len(synopsis) < 400:
                usage = "\n".join(line.strip() for line in synopsis.strip().split("\n"))
                yield (
                    rng.choice(
                        [
                            "how do I use {}?",
                            "how to use {}",
                            "usage of {}",
                            "show me how to call {}",
                        ]
                    ).format(shown),
                    f"Usage:\n\n{usage}",
                )
            if paragraph and 40 < len(paragraph) < 500:
                yield rng.choice(
                    ["explain {} in more detail", "describe {} in detail", "more about {}"]
                ).format(shown), paragraph


def module_name(path):
    """usr/lib/python3.11/os.py -> os; the package's own __init__ is the package."""
    tail = re.sub(r"^.*?/python3(\.\d+)?/(dist-packages/)?", "", path)[:-3]
    return tail.replace("/__init__", "").replace("/", ".").replace("posixpath", "os.path")


def python_turns(document, rng):
    try:
        tree = ast.parse(document["text"])
    except (SyntaxError, ValueError, RecursionError):
        return
    module, standard = module_name(document["path"]), document["package"].startswith("libpython")
    nodes = [(node, module) for node in tree.body]
    nodes += [
        (m, f"{module}.{n.name}") for n in tree.body if isinstance(n, ast.ClassDef) for m in n.body
    ]
    for node, owner in nodes:
        if not isinstance(
            node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
        ) or node.name.startswith("_"):
            continue
        text = sentence((ast.get_docstring(node) or "").split("\n\n")[0])
        if not text or (not standard and rng.random() < 0.8):
            continue
        full = f"{owner}.{node.name}"
        arguments = ast.unparse(node.args) if hasattr(node, "args") else ""
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        for _ in range(3 if standard else 1):
            yield ask(rng, full, kind), predicate(full, text)
        if arguments and len(arguments) < 80:
            yield f"what are the arguments of {full}?", f"{full}({arguments})"


def reference_turns(document, rng):
    """ ".. function:: os.path.join(path, *paths)" and the paragraph under it."""
    pattern = (
        r"^\.\. (function|class|method|data|exception):: ([\w.]+)(\(.*\))?\n"
        r"(?:(?: .*)?\n)*?\n +([A-Z].*(?:\n +\S.*)*)"
    )
    module = re.search(r"^\.\. (?:current)?module:: ([\w.]+)", document["text"], re.M)
    for kind, name, _, paragraph in re.findall(pattern, document["text"], re.M):
        if module and module[1] != "builtins" and not name.startswith(module[1] + "."):
            name = f"{module[1]}.{name}"
        plain = (
            re.sub(r":[\w:+]+:`[!~]?([^`<]*?)(?: ?<[^`]*>)?`", r"\1", paragraph)
            .replace("``", "")
            .replace("*", "")
        )
        text = sentence(plain)
        if text:
            for _ in range(5):
                yield ask(rng, name, kind), predicate(name, text)


def turns(document, rng):
    """All (question, answer) pairs of one document."""
    kinds = {"manual": manual_turns, "python": python_turns, "text": reference_turns}
    yield from kinds[document["kind"]](document, rng)


def chat(pairs):
    """ChatML: a document of one or more turns, without thinking, as the chat template has it."""
    return "".join(
        f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"
        f"<think>\n\n</think>\n\n{a}<|im_end|>\n"
        for q, a in pairs
    )
