// What bad input gets: a sentence that names the thing and the numbers, and nothing half-written.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Ran try_model(const std::string& model, const Words& more = {"--tokens", "1", "-n", "1"}) {
    Words words = {"generate", "-m", model};
    words.insert(words.end(), more.begin(), more.end());
    return run_strata(words);
}

// The model with `from` replaced by `to`, of the same size, where it first stands.
std::string patched(const TempDir& directory, std::string_view from, std::string_view to) {
    std::string bytes = read_file(tiny().path());
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    const std::string path = directory / "patched.gguf";
    write_file(path, bytes);
    return path;
}

TEST(BadInput, a_model_that_is_no_file_of_a_model) {
    const TempDir directory;
    write_file(directory / "text.gguf", "This is no model, whatever its name says.");
    write_file(directory / "empty.gguf", "");
    expect_failed(try_model(directory / "text.gguf"), "text.gguf");
    expect_failed(try_model(directory / "empty.gguf"), "empty.gguf");
    expect_failed(try_model(directory / "none.gguf"), "none.gguf");
    expect_failed(try_model(directory.path()), directory.path());
    expect_failed(try_model("/dev/null"), "/dev/null");
    expect_failed(run_strata({"inspect", directory / "text.gguf"}), "text.gguf");
    expect_failed(run_strata({"inspect", directory / "none.gguf"}), "none.gguf");
}

TEST(BadInput, a_truncated_model_is_an_error_wherever_it_ends) {
    const TempDir directory;
    const std::string bytes = read_file(tiny().path());
    for (const std::size_t size :
         {std::size_t{3}, std::size_t{4}, std::size_t{23}, std::size_t{100}, std::size_t{1000},
          std::size_t{8000}, bytes.size() / 2, bytes.size() - 1}) {
        write_file(directory / "cut.gguf", std::string_view(bytes).substr(0, size));
        SCOPED_TRACE(size);
        expect_failed(try_model(directory / "cut.gguf"), "cut.gguf");
        expect_failed(run_strata({"inspect", directory / "cut.gguf"}), "cut.gguf");
    }
}

TEST(BadInput, what_a_model_lacks_or_has_otherwise_is_named) {
    const TempDir directory;
    expect_failed(try_model(patched(directory, "blk.0.hc_ffn_norm", "blk.0.hc_ffn_nurm")),
                  "blk.0.");
    expect_failed(
        try_model(patched(directory, "qwen4exp.embedding_length", "qwen4exp.embedding_lenght")),
        "qwen4exp.embedding_length");
    expect_failed(try_model(patched(directory, std::string_view("\x08\0\0\0\0\0\0\0qwen4exp", 16),
                                    std::string_view("\x08\0\0\0\0\0\0\0qwen3moe", 16))),
                  "qwen3moe");
}

TEST(BadInput, sizes_that_wrap_or_reach_outside_the_file_are_errors) {
    const TempDir directory;
    const std::string name = "output_hc_norm.weight";
    const std::string bytes = read_file(tiny().path());
    // Behind the name: the number of dimensions (1), the dimension, the type, the offset.
    const std::size_t dimensions = bytes.find(name) + name.size();
    ASSERT_EQ(bytes[dimensions], 1);
    const std::size_t size = dimensions + 4;
    const std::size_t type = size + 8;
    const std::size_t offset = type + 4;
    const struct {
        std::size_t at;
        std::uint64_t value;
    } cases[] = {{size, 0},
                 {size, (std::uint64_t{1} << 42) + 1},
                 {size, std::uint64_t{1} << 63},
                 {size, UINT64_MAX},
                 {size, 513},
                 {offset, bytes.size()},
                 {offset, UINT64_MAX - 31},
                 {offset, 1}};
    for (const auto& one : cases) {
        std::string changed = bytes;
        std::memcpy(changed.data() + one.at, &one.value, sizeof(one.value));
        write_file(directory / "patched.gguf", changed);
        SCOPED_TRACE(one.value);
        expect_failed(try_model(directory / "patched.gguf"), name);
    }
    std::string changed = bytes;
    changed[type] = 99;
    write_file(directory / "patched.gguf", changed);
    expect_failed(try_model(directory / "patched.gguf"), name);
}

TEST(BadInput, a_split_set_without_one_of_its_parts_names_it) {
    const TempDir directory;
    for (const char* part : {"split-00001-of-00003.gguf", "split-00003-of-00003.gguf"}) {
        fs::copy_file(fs::path(STRATA_GGUF_DATA) / part, directory / part);
    }
    for (const std::string& path : {directory / "split-00001-of-00003.gguf",
                                    directory / "split-00003-of-00003.gguf", directory.path()}) {
        expect_failed(try_model(path), "split-00002-of-00003.gguf");
    }
}

TEST(BadInput, a_checkpoint_of_another_architecture_or_none_at_all) {
    const TempDir directory;
    const std::string output = directory / "out.gguf";
    expect_failed(run_strata({"convert", directory.path(), "-o", output}), "config.json");
    write_file(directory / "config.json", R"({"model_type": "llama", "hidden_size": 64})");
    expect_failed(run_strata({"convert", directory.path(), "-o", output}), "llama");
    write_file(directory / "config.json", "{");
    expect_failed(run_strata({"convert", directory.path(), "-o", output}), "config.json");
    expect_failed(run_strata({"convert", directory / "none", "-o", output}), "none");
    EXPECT_EQ(directory.names(), Words{"config.json"});
}

TEST(BadInput, a_type_that_is_none_or_does_not_fit_leaves_no_file) {
    const TempDir directory;
    const std::string checkpoint = golden_directory("tiny") + "/target";
    const std::string output = directory / "out.gguf";
    expect_wrong_use(run_strata({"convert", checkpoint, "-o", output, "--type", "q9_9"}), "q9_9");
    expect_wrong_use(run_strata({"convert", checkpoint, "-o", output, "--head", "q9_9"}), "q9_9");
    EXPECT_TRUE(directory.names().empty());
}

TEST(BadInput, prompts_that_cannot_be_run) {
    expect_failed(try_model(tiny().path(), {"--tokens", "1,1024,2"}), "1024");
    expect_failed(try_model(tiny().path(), {"--tokens", "2147483647"}), "0 to 1023");
    expect_failed(try_model(talking().path(), {"-f", "/dev/null"}), "empty");
    expect_failed(try_model(talking().path(), {"-f", talking().directory().path()}), "directory");
    expect_failed(try_model(talking().path(), {"-f", "none"}), "none");
    expect_failed(try_model(tiny().path(), {"-p", "text"}), "no tokenizer");
    expect_failed(try_model(tiny().path(), {"--tokens", "1,2,3,4,5", "-c", "4"}), "context of 4");
    expect_failed(try_model(tiny().path(), {"--tokens", "1", "-c", "1000000000"}), "4096");
}

TEST(BadInput, the_other_commands_refuse_such_tokens_too_and_leave_no_file) {
    const TempDir directory;
    const std::string output = directory / "out";
    const std::string& model = tiny().path();
    for (const char* tokens : {"1024", "5,6,2000000000"}) {
        expect_failed(run_strata({"logits", "-m", model, "--tokens", tokens, "-o", output}),
                      "0 to 1023");
        expect_failed(run_strata({"features", "-m", model, "--tokens", tokens, "--layers", "0",
                                  "-o", output}),
                      "0 to 1023");
        expect_failed(run_strata({"draft", "-m", model, "--mtp", "--tokens", tokens, "--anchor",
                                  "1", "--json"}),
                      "0 to 1023");
    }
    expect_failed(run_strata({"logits", "-m", model, "--tokens", "1,2,3", "-c", "2", "-o", output}),
                  "context of 2");
    expect_failed(
        run_strata({"logits", "-m", model, "--tokens", "1", "--head", "mtp", "-o", output}), "2");
    expect_failed(
        run_strata({"features", "-m", model, "--tokens", "1", "--layers", "0,4", "-o", output}),
        "4");
    expect_failed(run_strata({"draft", "-m", model, "--mtp", "--tokens", "1", "--anchor", "1024"}),
                  "1024");
    EXPECT_TRUE(directory.names().empty());
}

TEST(BadInput, outputs_that_cannot_be_written) {
    const TempDir directory;
    const std::string checkpoint = golden_directory("tiny") + "/target";
    for (const std::string& output :
         {directory / "none/out", directory.path(), std::string("/dev/null"),
          std::string("/dev/full"), std::string("/proc/out")}) {
        SCOPED_TRACE(output);
        expect_failed(run_strata({"logits", "-m", tiny().path(), "--tokens", "1", "-o", output}),
                      output);
        expect_failed(run_strata({"convert", checkpoint, "-o", output}), output);
    }
    expect_failed(run_strata({"features", "-m", tiny().path(), "--tokens", "1", "--layers", "0",
                              "-o", directory / "none/out"}),
                  "none/out.idx");
    fs::create_directory(directory / "out.f16");
    expect_failed(run_strata({"features", "-m", tiny().path(), "--tokens", "1", "--layers", "0",
                              "-o", directory / "out"}),
                  "out.f16");
    EXPECT_EQ(directory.names(), Words{"out.f16"});
}

TEST(BadInput, a_model_is_not_written_over) {
    const TempDir directory;
    const std::string model = directory / "model.gguf";
    fs::copy_file(tiny().path(), model);
    fs::create_symlink(model, directory / "link");
    for (const std::string& output :
         {model, directory / "link", directory.path() + "/./model.gguf"}) {
        expect_failed(run_strata({"logits", "-m", model, "--tokens", "1", "-o", output}),
                      "another name");
    }
    fs::copy(golden_directory("tiny") + "/target", directory / "checkpoint");
    const std::string weights = directory / "checkpoint/model.safetensors";
    expect_failed(run_strata({"convert", directory / "checkpoint", "-o", weights}), "another name");
    EXPECT_EQ(read_file(model), read_file(tiny().path()));
    EXPECT_EQ(read_file(weights),
              read_file(golden_directory("tiny") + "/target/model.safetensors"));
}

TEST(BadInput, a_full_disk_leaves_the_old_file_and_nothing_else) {
    const TempDir directory;
    write_file(directory / "out", "old");
    RunOptions options;
    options.file_bytes_max = 2048;
    expect_failed(
        run_strata({"logits", "-m", tiny().path(), "--tokens", "1", "-o", directory / "out"},
                   options),
        "out");
    expect_failed(run_strata({"features", "-m", tiny().path(), "--tokens", "1,2,3,4,5,6,7,8,9",
                              "--layers", "0,1,2,3", "-o", directory / "out"},
                             options),
                  "out.f16");
    options.file_bytes_max = 100000;
    expect_failed(
        run_strata({"convert", golden_directory("tiny") + "/target", "-o", directory / "out"},
                   options),
        "out");
    EXPECT_EQ(directory.names(), Words{"out"});
    EXPECT_EQ(read_file(directory / "out"), "old");
}

TEST(BadInput, a_program_whose_time_for_computing_is_up_leaves_nothing_half_written) {
    const TempDir directory;
    write_file(directory / "out", "old");
    const std::vector<std::int32_t> tokens(4000, 7);  // seconds of work, one by one
    RunOptions options;
    options.signal_at_output = SIGXCPU;
    options.output_file = directory / "out";
    expect_failed(run_strata({"logits", "-m", tiny().path(), "--tokens", list_text(tokens),
                              "--window", "1", "-t", "1", "-o", directory / "out"},
                             options),
                  "interrupted");
    EXPECT_EQ(directory.names(), Words{"out"});
    EXPECT_EQ(read_file(directory / "out"), "old");
}

TEST(BadInput, output_that_nobody_takes_is_an_error_and_untold_where_the_reader_left) {
    RunOptions options;
    options.output_path = "/dev/full";
    for (const Words& words :
         {Words{"--help"}, Words{"inspect", tiny().path()},
          Words{"generate", "-m", tiny().path(), "--tokens", "1", "-n", "1"},
          Words{"generate", "-m", tiny().path(), "--tokens", "1", "-n", "1", "--json"}}) {
        expect_failed(run_strata(words, options), "No space left");
    }
    RunOptions leaves;
    leaves.reader_leaves = true;
    for (const Words& words :
         {Words{"--help"}, Words{"inspect", tiny().path()},
          Words{"generate", "-m", tiny().path(), "--tokens", "1", "-n", "1"}}) {
        const Ran ran = run_strata(words, leaves);
        EXPECT_EQ(ran.status, 1);
        EXPECT_EQ(ran.err, "");
    }
}

}  // namespace
}  // namespace strata::test
