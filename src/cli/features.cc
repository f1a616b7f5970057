// strata features: the mean of the residual streams after chosen layers, for training drafters.
#include <array>
#include <bit>
#include <cstdio>

#include "base/output_file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/guard.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "strata/engine.h"
#include "strata/half.h"

namespace strata::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

struct Features {
    ModelOptions model;
    std::optional<std::vector<std::int32_t>> tokens;
    std::optional<std::vector<std::int32_t>> layers;
    std::string prefix;
};

Status write_index(OutputFile* file, std::span<const std::int32_t> tokens) {
    std::int32_t position = 0;
    for (const std::int32_t token : tokens) {
        const std::array<std::int32_t, 2> row = {position++, token};
        STRATA_TRY(file->write(std::as_bytes(std::span(row))));
    }
    return Ok{};
}

Status write_halves(OutputFile* file, std::span<const float> values) {
    std::vector<std::uint16_t> halves(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) halves[i] = half_bits(values[i]);
    return file->write(std::as_bytes(std::span<const std::uint16_t>(halves)));
}

Status run(const Features& options) {
    const std::string index_path = options.prefix + ".idx";
    const std::string rows_path = options.prefix + ".f16";
    STRATA_TRY(guard_models(index_path));
    STRATA_TRY(guard_models(rows_path));
    const Interrupt interrupt;
    STRATA_ASSIGN(const auto engine, load(options.model));
    STRATA_ASSIGN(OutputFile index, OutputFile::create(index_path));
    STRATA_ASSIGN(OutputFile rows, OutputFile::create(rows_path));
    const std::vector<std::int64_t> layers(options.layers->begin(), options.layers->end());
    const std::int64_t width = static_cast<std::int64_t>(layers.size()) * engine->info().hidden;
    Progress progress("features");
    std::int64_t done = 0;
    const auto write = [&](std::span<const float> values) -> Status {
        STRATA_TRY(interrupt.status());
        done += static_cast<std::int64_t>(values.size()) / width;
        progress.show(done, static_cast<std::int64_t>(options.tokens->size()));
        return write_halves(&rows, values);
    };
    STRATA_TRY(engine->features(*options.tokens, layers, write));
    STRATA_TRY(write_index(&index, *options.tokens));
    STRATA_TRY(rows.commit());
    const Status status = index.commit();
    if (!status.ok()) std::remove(rows_path.c_str());
    return status;
}

}  // namespace

Run add_features(Options& options) {
    const auto to = std::make_shared<Features>();
    add_model_options(options, &to->model);
    options
        .list("--tokens", "token id", &to->tokens,
              "Token ids: 1,2,3, or @FILE for a file that holds such a list")
        .required();
    options
        .list("--layers", "layer", &to->layers,
              "Layers, counted from 0, after which the mean of the residual streams is taken")
        .required();
    options
        .text("-o,--output", "PREFIX", &to->prefix,
              "Where to write: PREFIX.idx gets int32 position and int32 token a row, PREFIX.f16 "
              "layers x hidden halves a row; both whole or neither")
        .required();
    return [to] { return run(*to); };
}

}  // namespace strata::cli
