#include "tests/cli/models.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/run_binary.h"
#include "tests/golden/golden.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kBytes = 256;

void convert(const std::string& from, const std::string& to) {
    const Ran ran = run_strata({"convert", from, "-o", to});
    if (ran.status == 0) return;
    std::fprintf(stderr, "cannot make a model of %s: %s\n", from.c_str(), ran.err.c_str());
    std::abort();
}

// With one file of the checkpoint added or in place of its own.
void convert_with(const std::string& checkpoint, const std::string& name,
                  const std::string& content, const std::string& to) {
    const TempDir copy;
    for (const auto& entry : fs::directory_iterator(golden_directory(checkpoint) + "/target")) {
        if (entry.path().filename() == name) continue;
        fs::create_symlink(entry.path(), copy / entry.path().filename().string());
    }
    write_file(copy / name, content);
    convert(copy.path(), to);
}

std::string utf8(int code) {
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The character that stands for each byte in byte-level BPE: itself where it prints, else one from
// U+0100 on.
std::vector<std::string> byte_characters() {
    std::vector<std::string> characters;
    int next = kBytes;
    for (int byte = 0; byte < kBytes; ++byte) {
        const bool prints = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        characters.push_back(utf8(prints ? byte : next++));
    }
    return characters;
}

std::string tokenizer_json() {
    const std::vector<std::string> control = {"<|endoftext|>", "<|im_start|>", "<think>",
                                              "</think>",      "<tool_call>",  "</tool_call>",
                                              "<|reserved|>",  "<|im_end|>"};
    Json vocabulary = Json::object();
    Json added = Json::array();
    int id = 0;
    for (const std::string& name : control) {
        added.push_back({{"id", id++},
                         {"content", name},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    }
    for (const std::string& character : byte_characters()) vocabulary[character] = id++;
    Json merges = Json::array();
    for (char a = 'a'; a <= 'z'; ++a) {
        for (char b = 'a'; b <= 'z'; ++b) {
            merges.push_back(std::string{a, ' ', b});
            vocabulary[std::string{a, b}] = id++;
        }
    }
    const Json split = {
        {"type", "Split"},
        {"pattern",
         {{"Regex", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
        {"behavior", "Isolated"},
        {"invert", false}};
    const Json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", false},
                        {"use_regex", false}};
    return Json{
        {"version", "1.0"},
        {"added_tokens", added},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}}},
        {"post_processor", nullptr},
        {"decoder", bytes},
        {"model",
         {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"vocab", vocabulary},
          {"merges", merges}}}}
        .dump();
}

}  // namespace

Model::Model(const std::string& checkpoint) : path_(directory_ / "model.gguf") {
    convert(golden_directory(checkpoint) + "/target", path_);
}

Model::Model(const std::string& checkpoint, const std::string& generation_config)
    : path_(directory_ / "model.gguf") {
    convert_with(checkpoint, "generation_config.json", generation_config, path_);
}

TalkingModel::TalkingModel() : path_(directory_ / "model.gguf") {
    convert_with("tiny", "tokenizer.json", tokenizer_json(), path_);
}

const Model& tiny() {
    static const Model model("tiny");
    return model;
}

const Model& odd() {
    static const Model model("odd");
    return model;
}

const TalkingModel& talking() {
    static const TalkingModel model;
    return model;
}

const std::string& draft_of(const std::string& checkpoint) {
    static const TempDir directory;
    static std::map<std::string, std::string> paths;
    std::string& path = paths[checkpoint];
    if (path.empty()) {
        path = directory / (checkpoint + ".gguf");
        convert(golden_directory(checkpoint) + "/draft", path);
    }
    return path;
}

std::string list_text(std::span<const std::int32_t> ids) {
    std::string text;
    for (const std::int32_t id : ids) {
        if (!text.empty()) text += ',';
        text += std::to_string(id);
    }
    return text;
}

}  // namespace strata::test
