// strata logits: teacher-forced logits of every position, as a file of floats.
#include <bit>

#include "base/output_file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/guard.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "strata/engine.h"

namespace strata::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are written as they lie");

struct Logits {
    ModelOptions model;
    std::optional<std::vector<std::int32_t>> tokens;
    std::string output;
    std::int64_t window = 0;
    std::size_t head = 0;  // of the choices main, mtp
};

Status run(const Logits& options) {
    STRATA_TRY(guard_models(options.output));
    const Interrupt interrupt;
    STRATA_ASSIGN(const auto engine, load(options.model));
    STRATA_ASSIGN(OutputFile file, OutputFile::create(options.output));
    LogitsRequest request;
    request.tokens = *options.tokens;
    request.window = options.window;
    request.head = options.head == 0 ? LogitsHead::main : LogitsHead::mtp;
    Progress progress("logits");
    std::int64_t rows_done = 0;
    const auto write = [&](std::span<const float> rows) -> Status {
        STRATA_TRY(interrupt.status());
        rows_done += static_cast<std::int64_t>(rows.size()) / engine->info().vocabulary;
        progress.show(rows_done, static_cast<std::int64_t>(request.tokens.size()));
        return file.write(std::as_bytes(rows));
    };
    STRATA_TRY(engine->logits(request, write));
    return file.commit();
}

}  // namespace

Run add_logits(Options& options) {
    const auto to = std::make_shared<Logits>();
    add_model_options(options, &to->model);
    options
        .list("--tokens", "token id", &to->tokens,
              "Token ids: 1,2,3, or @FILE for a file that holds such a list")
        .required();
    options
        .text("-o,--output", "FILE", &to->output,
              "Where to write float32 little-endian rows [n, vocabulary]; whole or not at all")
        .required();
    options.integer("--window", {1, kWindowMax}, &to->window,
                    concat("Rows run at a time through the path that verifies drafts, 1 to ",
                           kWindowMax, " (default: read as a prompt is)"));
    options.choice("--head", {"main", "mtp"}, &to->head,
                   "main, or mtp for the MTP layer's logits [n-1, vocabulary]: row p from the "
                   "trunk's residual at p and token p+1 (default: main)");
    return [to] { return run(*to); };
}

}  // namespace strata::cli
