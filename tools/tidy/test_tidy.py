#!/usr/bin/env python3
"""Every rule of tidy.py finds what it forbids, planted in an otherwise clean tree, and no more."""

import pathlib
import tempfile
import unittest

import rules
from tidy import Project

LAYERS = """\
strata:
base: strata
gguf: base
op: base
backend/cpu: op base
model: op gguf base
cli: strata base
<CLI/: cli
"""
HEADER = "// What it is for.\n#pragma once\n"


def c_function(lines):
    """A function of that many lines."""
    return "int f(int x) {\n" + "    x += 1;\n" * (lines - 3) + "    return x;\n}\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self._folder.name)
        self.write("tools/tidy/layers.txt", LAYERS)
        self.write("src/base/text.h", HEADER)
        self.write("src/base/text.cc", '#include "base/text.h"\n')
        self.write("src/base/CMakeLists.txt", "strata_library(base SOURCES text.cc)\n")

    def tearDown(self):
        self._folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def model(self, code, uses="base"):
        """A model folder whose only file is this."""
        self.write("src/model/m.cc", code)
        self.write("src/model/CMakeLists.txt", f"strata_library(model SOURCES m.cc USES {uses})\n")

    def findings(self):
        return sorted(set(Project(self.root).findings()))

    def clean(self):
        self.assertEqual(self.findings(), [])

    def found(self, path, line, words):
        """Exactly one finding, there, with these words."""
        findings = self.findings()
        self.assertEqual([(p, n) for p, n, _ in findings], [(path, line)], findings)
        self.assertIn(words, findings[0][2])


class Layering(Tree):
    def test_a_clean_tree_has_no_findings(self):
        self.model('#include "base/text.h"\n\n#include <vector>\n')
        self.clean()

    def test_an_include_that_is_not_granted(self):
        self.model('#include "base/text.h"\n#include "cli/x.h"\n')
        self.found("src/model/m.cc", 2, "model may not include cli")

    def test_a_backend_is_not_its_parent_folder(self):
        self.write("src/backend/cpu/k.h", HEADER)
        self.model('#include "backend/cpu/k.h"\n')
        self.found("src/model/m.cc", 1, "model may not include backend/cpu")

    def test_an_include_inside_a_comment_does_not_count_as_one_of_nothing(self):
        self.model('#include "base/text.h"\n// see "cli/x.h"\n')
        self.clean()

    def test_public_headers_see_nothing_of_src(self):
        self.write("include/strata/api.h", HEADER + '#include "base/text.h"\n')
        self.write("src/base/text.cc", '#include "base/text.h"\n#include "strata/api.h"\n')
        self.found("include/strata/api.h", 3, "strata may not include base")

    def test_an_include_that_names_no_folder(self):
        self.model('#include "text.h"\n')
        self.found("src/model/m.cc", 1, 'wanted "folder/file.h"')

    def test_a_library_in_a_folder_that_may_not_see_it(self):
        self.model("#include <CLI/CLI.hpp>\n")
        self.found("src/model/m.cc", 1, "model may not include <CLI/CLI.hpp>")

    def test_a_folder_that_is_not_listed(self):
        self.write("src/misc/m.cc", "int x;\n")
        self.write("src/misc/CMakeLists.txt", "add_library(misc m.cc)\n")
        self.found("src/misc/m.cc", 1, "no folder that layers.txt lists")

    def test_a_cycle_in_the_list(self):
        self.write("tools/tidy/layers.txt", LAYERS.replace("base: strata", "base: model"))
        self.found("tools/tidy/layers.txt", 2, "base uses model before it is listed")

    def test_the_diagram_leaves_out_what_longer_paths_say(self):
        drawn = Project(self.root).layers.mermaid()
        self.assertIn('model["model"] --> op["op"]', drawn)
        self.assertIn('backend_cpu["backend/cpu"] --> op["op"]', drawn)
        self.assertNotIn('model["model"] --> base["base"]', drawn)

    def test_a_diagram_of_other_layers(self):
        self.write("ARCHITECTURE.md", "graph TD\n")
        self.found("ARCHITECTURE.md", 1, "--mermaid")


class Build(Tree):
    def test_a_folder_without_its_library(self):
        self.model("int x;\n")
        self.write("src/model/CMakeLists.txt", "add_library(model m.cc)\n")
        self.found("src/model/CMakeLists.txt", 1, "no strata_library(model ...)")

    def test_a_source_that_is_not_built(self):
        self.model("int x;\n")
        self.write("src/model/other.cc", "int y;\n")
        self.found("src/model/other.cc", 1, "named in no CMakeLists.txt")

    def test_a_source_whose_name_ends_another_name(self):
        self.model("int x;\n")
        self.write("src/model/CMakeLists.txt", "strata_library(model SOURCES m.cc the_other.cc)\n")
        self.write("src/model/the_other.cc", "int y;\n")
        self.write("src/model/other.cc", "int y;\n")
        self.found("src/model/other.cc", 1, "named in no CMakeLists.txt")

    def test_a_library_that_uses_what_it_may_not(self):
        self.model("int x;\n", uses="base cli")
        self.found("src/model/CMakeLists.txt", 1, "USES cli")

    def test_cli_links_who_implements_the_public_headers(self):
        self.write("tools/tidy/layers.txt", LAYERS.replace("model: op", "model: strata op"))
        self.model("int x;\n")
        self.write("src/cli/c.cc", "int y;\n")
        self.write("src/cli/CMakeLists.txt", "strata_library(cli SOURCES c.cc USES model base)\n")
        self.clean()

    def test_names_made_by_a_loop(self):
        self.model("int x;\n")
        self.write("src/model/CMakeLists.txt",
                   "foreach(name m n)\nstrata_library(model SOURCES ${name}.cc)\nendforeach()\n")
        self.clean()

    def test_sources_by_pattern(self):
        self.model("int x;\n")
        self.write("tests/CMakeLists.txt", "\nfile(GLOB all *.cc)\n")
        self.found("tests/CMakeLists.txt", 2, "by pattern")

    def test_own_header_is_included_first(self):
        self.write("src/base/text.cc", '#include <vector>\n\n#include "base/text.h"\n')
        self.found("src/base/text.cc", 1, 'does not include "base/text.h" first')


class Calls(Tree):
    def test_each_banned_call(self):
        for code, rule in (
            ('std::printf("x");', "stdout"),
            ("std::cerr << 1;", "stdout"),
            ("std::exit(1);", "exit"),
            ("abort();", "exit"),
            ('std::getenv("X");', "environment"),
            ('std::system("ls");', "shell"),
            ("throw 1;", "throw"),
            ("std::stoi(x);", "throw"),
            ("int* p = new int;", "new"),
            ("delete p;\n}", "new"),
            ("std::malloc(3);", "new"),
            ("std::rand();", "random"),
            ("std::mt19937 g;", "random"),
            ("std::sprintf(a, b);", "unsafe"),
            ("strcpy(a, b);", "unsafe"),
            ("assert(x);", "assert"),
            ("using namespace std;", "using"),
            ("out << std::endl;", "flush"),
        ):
            with self.subTest(code):
                self.model(f"void f() {{\n    {code}\n}}\n")
                self.found("src/model/m.cc", 2, f"[{rule}]")

    def test_what_only_looks_like_one(self):
        for code in (
            "// throw, new and delete are words",
            'auto x = "printf(";',
            "static_assert(sizeof(int) == 4);",
            "struct A { A(const A&) = delete; };",
            "auto x = std::unique_ptr<A>(new A(1));",
            "std::unique_ptr<A> x(new A(1));",
            "int n = 1'000'000; char c = 'x'; int new_rows = 2;",
            "auto r = R\"(throw 1; \" exit(1);)\";",
            "std::snprintf(a, 3, b);",
        ):
            with self.subTest(code):
                self.model(f"{code}\n")
                self.clean()

    def test_a_macro_is_code_too(self):
        self.model("#define LEAVE() std::exit(1)\n")
        self.found("src/model/m.cc", 1, "[exit]")

    def test_cli_may_print_and_exit(self):
        self.write("src/cli/m.cc", 'void f() { std::printf("x"); std::exit(1); }\n')
        self.write("src/cli/CMakeLists.txt", "strata_library(cli SOURCES m.cc USES base)\n")
        self.clean()

    def test_a_named_exception_excuses_its_rule_and_file_alone(self):
        self.write("tools/tidy/exceptions.txt", "exit: src/model/m.cc: a reason\n")
        self.model("void f() { std::abort(); }\n")
        self.clean()
        self.model("void f() { std::abort(); throw 1; }\n")
        self.found("src/model/m.cc", 1, "[throw]")

    def test_an_exception_that_excuses_nothing(self):
        self.write("tools/tidy/exceptions.txt", "# why\nexit: src/model/m.cc: a reason\n")
        self.found("tools/tidy/exceptions.txt", 2, "excuses no 'exit'")


class Shape(Tree):
    def test_columns(self):
        self.model("// " + "x" * 97 + "\n")
        self.clean()
        self.model("// " + "x" * 98 + "\n")
        self.found("src/model/m.cc", 1, "101 columns")

    def test_a_column_is_a_character_not_a_byte(self):
        self.model("// " + "\u00e9" * 97 + "\n")
        self.clean()

    def test_white_space(self):
        for text, words in (("int x; \n", "end of the line"), ("\tint x;\n", "a tab"),
                            ("int x;", "no newline")):
            with self.subTest(words):
                self.model(text)
                self.found("src/model/m.cc", 1, words)

    def test_functions_have_a_red_zone(self):
        self.model(c_function(70))
        self.clean()
        self.model("\n" + c_function(71))
        self.found("src/model/m.cc", 2, "a function of 71 lines")

    def test_long_functions_are_found_wherever_they_are(self):
        body = c_function(71)
        for before, after in (
            ("namespace a::b {\nnamespace {\n", "}\n}\n"),
            ("class A : public B<int> {\n  public:\n", "};\n"),
            ("template <class T, int N = 2>\n", ""),
            ("constexpr int kTable[] = {1, 2};\n", ""),
            ("int g(int a = {}) { return a; }\n", ""),
            ("A::A() : x_{1}, y_(2) {}\n", ""),
            ("#define LEFT {\n", ""),
            ('const char* brace = "{"; // {\n', ""),
            ("enum class E : int { a, b };\n", ""),
            ('extern "C" {\n', "}\n"),
            ("bool operator==(A a, B b) { return a.x >= b.x; }\n", ""),
        ):
            with self.subTest(before):
                self.model(before + body + after)
                self.assertIn("a function of 7", self.findings()[0][2])
                self.model(before + c_function(60) + after)
                self.clean()

    def test_a_long_table_or_class_is_no_function(self):
        self.model("constexpr int kTable[] = {\n" + "    1,\n" * 80 + "};\n")
        self.clean()
        self.model("struct A {\n" + "    int f(int x) { return x; }\n" * 80 + "};\n")
        self.clean()

    def test_python_functions_too(self):
        self.write("tools/x.py", "def f(x):\n" + "    x += 1\n" * 70)
        self.found("tools/x.py", 1, "a function of 71 lines")

    def test_files(self):
        self.model("int x;\n" * 500)
        self.clean()
        self.model("int x;\n" * 501)
        self.found("src/model/m.cc", 500, "501 lines")

    def test_test_files_may_be_longer(self):
        self.write("tests/CMakeLists.txt", "add_executable(t t.cc)\n")
        self.write("tests/t.cc", "int x;\n" * 600)
        self.clean()
        self.write("tests/t.cc", "int x;\n" * 601)
        self.found("tests/t.cc", 600, "601 lines")

    def test_large_files(self):
        self.write("models/m.gguf", "x" * (rules.BYTES_MAX + 1))
        self.clean()
        self.write("docs/m.bin", "x" * (rules.BYTES_MAX + 1))
        self.found("docs/m.bin", 1, "2097153 bytes")

    def test_file_names(self):
        self.write("src/base/CMakeLists.txt", "strata_library(base SOURCES text.cc A.cc)\n")
        self.write("src/base/A.cc", "int x;\n")
        self.found("src/base/A.cc", 1, "snake_case")


class Text(Tree):
    def test_a_header_is_guarded_and_says_what_it_is_for(self):
        self.write("src/base/text.h", "// What it is for. #pragma once\nint x;\n")
        self.found("src/base/text.h", 1, "without '#pragma once'")
        self.write("src/base/text.h", "#pragma once\n// About x.\nint x;\n")
        self.found("src/base/text.h", 1, "opens with a comment")
        self.write("src/base/text.h", "#pragma once\n")
        self.found("src/base/text.h", 1, "without a comment")

    def test_a_header_that_nobody_includes(self):
        self.write("src/base/dead.h", HEADER)
        self.found("src/base/dead.h", 1, "nobody includes")

    def test_every_op_is_called_in_a_test(self):
        self.write("src/op/ops.def", "STRATA_OP(embed, Embed)\n")
        self.write("tests/op/CMakeLists.txt", "add_executable(t t.cc)\n")
        self.write("tests/op/t.cc", "auto x = ops.embedding;  // embed\n")
        self.found("src/op/ops.def", 1, "nothing in tests/op calls embed")
        self.write("tests/op/t.cc", "auto x = ops.embed;\n")
        self.clean()

    def test_contracts_know_no_caller_and_no_machine(self):
        self.write("src/op/o.h", HEADER + "// One row: the Decode case.\n")
        self.write("src/base/text.cc", '#include "base/text.h"\n')
        self.model('#include "op/o.h"\n// decode\n')
        self.found("src/op/o.h", 3, "'Decode'")

    def test_what_is_unfinished(self):
        for words in ("TO" "DO", "FIX" "ME: x", "X" "XX", "for n" "ow", "a place" "holder"):
            with self.subTest(words):
                self.write("docs/x.md", f"\n{words}\n")
                self.found("docs/x.md", 2, "unfinished")

    def test_paths_of_one_machine(self):
        for path in ("/ro" "ot/x", "see /ho" "me/me", '"/tm' 'p/x"', "/wo" "rk/y"):
            with self.subTest(path):
                self.write("docs/x.md", f"{path}\n")
                self.found("docs/x.md", 1, "path of one machine")
        self.write("docs/x.md", "src/ro" "ot/x and https://a.b/ho" "me\n")
        self.clean()

    def test_tensor_names_have_a_home(self):
        self.model('auto x = "blk.0.attn_norm.weight";\n')
        self.found("src/model/m.cc", 1, "a tensor's name")
        self.write("src/model/CMakeLists.txt", "strata_library(model SOURCES tensors.cc)\n")
        (self.root / "src/model/m.cc").rename(self.root / "src/model/tensors.cc")
        self.clean()

    def case(self, listed, named):
        self.write("docs/cases.md", f"| id | what |\n|---|---|\n{listed}")
        self.write("tests/model/CMakeLists.txt", "strata_test(m_test SOURCES m_test.cc)\n")
        self.write("tests/model/m_test.cc", f"// {named}\nint x;\n")

    def test_a_case_that_is_named_is_listed(self):
        self.case("| CASE-01 | a |\n", "CASE-01, CASE-03")
        self.found("tests/model/m_test.cc", 1, "does not say what CASE-03 is")

    def test_a_case_that_is_listed_is_named(self):
        self.case("| CASE-01 | a |\n| CASE-02 | b |\n", "CASE-01")
        self.found("docs/cases.md", 4, "no test names CASE-02")

    def test_links_lead_somewhere(self):
        self.write("docs/x.md", "[a](y.md) [b](https://a.b/c) [c](#d) [e](../tools)\n")
        self.found("docs/x.md", 1, "no y.md")
        self.write("docs/y.md", "y\n")
        self.clean()


if __name__ == "__main__":
    unittest.main()
