// What a drafter is trained on, written as the model runs: docs/commands.md, "Dumping features".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/append_file.h"
#include "base/result.h"
#include "device/tensor.h"
#include "model/config.h"
#include "model/target.h"
#include "strata/engine.h"

namespace strata {

// PREFIX.json says what the rows hold; a row is in all of PREFIX.idx, .f16 and .res, or in none.
// Where no row was ever written, no file is left behind.
class FeatureDump {
  public:
    // Goes on with files of the same layers and sizes. `dump.layers` are given, each of the model.
    // Errors: a file that cannot be written, that holds rows of another kind, or that lacks rows
    // which the others hold, by more than a process that ended while it wrote can have left.
    static Result<FeatureDump> open(const DumpOptions& dump, const model::Config& config,
                                    const std::string& model_name);

    std::span<const std::int64_t> layers() const { return layers_; }
    bool residual() const { return residual_.has_value(); }

    // Asks a step for what append() writes.
    void want(model::StepRequest& request) const;

    // The first rows of a step, one for each of `tokens`, at positions `first` on. Error: the disk
    // is full, or another reason; no row is added then.
    Status append(std::int64_t first, std::span<const std::int32_t> tokens,
                  const model::StepResult& result);

  private:
    FeatureDump(AppendFile index, AppendFile features, AppendFile kind_file)
        : index_(std::move(index)),
          features_(std::move(features)),
          kind_file_(std::move(kind_file)) {}
    Status check_kind() const;
    Status cut_to_whole_rows(std::uint64_t feature_bytes, std::uint64_t residual_bytes);
    Status append_rows(std::int64_t first, std::span<const std::int32_t> tokens,
                       const model::StepResult& result);

    std::vector<std::int64_t> layers_;
    std::string kind_;  // what the rows hold
    AppendFile index_;
    AppendFile features_;
    AppendFile kind_file_;
    std::optional<AppendFile> residual_;
};

}  // namespace strata
