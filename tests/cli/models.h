// Models for the tests of the commands, made by the program itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace strata::test {

// Those that come with the program, where they lie.
inline const std::string kBundledModel = STRATA_MODELS "/strata-mini.gguf";
inline const std::string kBundledDraft = STRATA_MODELS "/strata-mini-draft.gguf";

// One golden checkpoint ("tiny" or "odd") as a GGUF file of BF16, in which its values are exact,
// and a directory for what comes of it. Ends the test program where it cannot be made.
class Model {
  public:
    explicit Model(const std::string& checkpoint);
    // With another generation_config.json.
    Model(const std::string& checkpoint, const std::string& generation_config);

    const std::string& path() const { return path_; }
    const TempDir& directory() const { return directory_; }

  private:
    TempDir directory_;
    std::string path_;
};

// The tiny checkpoint beside a byte-level tokenizer with the control tokens of ChatML, whose end
// token is the checkpoint's.
class TalkingModel {
  public:
    TalkingModel();

    const std::string& path() const { return path_; }
    const TempDir& directory() const { return directory_; }

  private:
    TempDir directory_;
    std::string path_;
};

// One of each for a test program.
const Model& tiny();
const Model& odd();
const TalkingModel& talking();

// The draft of a golden checkpoint as a GGUF file of BF16.
const std::string& draft_of(const std::string& checkpoint);

// "1,2,3"
std::string list_text(std::span<const std::int32_t> ids);

// A file of values, as they lie.
template <typename T>
std::vector<T> read_values(const std::string& path) {
    const std::string bytes = read_file(path);
    std::vector<T> values(bytes.size() / sizeof(T));
    bytes.copy(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T));
    return values;
}

}  // namespace strata::test
