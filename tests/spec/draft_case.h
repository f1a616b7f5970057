// The golden targets and their drafts, loaded; and draft files that tests change.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "gguf/reader.h"
#include "model/target.h"
#include "spec/dflash/block_model.h"
#include "tests/golden/golden.h"
#include "tests/support/temp_dir.h"

namespace strata::test {

// A GGUF file in memory.
struct DraftFile {
    struct Tensor {
        std::string name;
        quant::Type type;
        std::vector<std::uint64_t> shape;
        std::string bytes;
    };
    std::vector<std::pair<std::string, gguf::Value>> metadata;
    std::vector<Tensor> tensors;

    static DraftFile load(const std::string& path);
    void write(const std::string& path) const;
    void set(const std::string& key, gguf::Value value);
    void erase(const std::string& key);
    Tensor& at(const std::string& name);
};

// Of "tiny" or "odd", converted once a test program in BF16, in which its values are exact.
class GoldenDraft {
  public:
    // On `backend`, which outlives it; null: on a CPU backend of its own.
    explicit GoldenDraft(const std::string& name, const Backend* backend = nullptr);
    static GoldenDraft& of(const std::string& name);

    const Golden& golden() const { return golden_; }
    const std::string& draft_path() const { return draft_path_; }
    const std::string& target_path() const { return target_path_; }
    model::Target& target() { return *target_; }

    // The drafter of a file. Ends the test program where it is refused.
    std::unique_ptr<dflash::BlockModel> drafter(const std::string& path,
                                                std::int64_t rows_max = 32);
    std::unique_ptr<dflash::BlockModel> drafter() { return drafter(draft_path_); }
    Result<std::unique_ptr<dflash::BlockModel>> try_drafter(const std::string& path,
                                                            std::int64_t rows_max = 32);
    // The draft's file after `change`.
    Result<std::unique_ptr<dflash::BlockModel>> changed(
        const std::function<void(DraftFile&)>& change);

    // Features of the first `rows` tokens of the prompt `long`, as the reference has them.
    std::vector<float> features(const dflash::Config& config, std::int64_t rows) const;

  private:
    TempDir directory_;
    std::string target_path_;
    std::string draft_path_;
    Golden golden_;
    Backend own_;
    const Backend& backend_;
    std::unique_ptr<model::Target> target_;
};

}  // namespace strata::test
