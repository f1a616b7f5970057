#include <cmath>
#include <numbers>

#include "base/text.h"
#include "eval/row.h"
#include "eval/windows.h"

namespace strata {

Result<Perplexity> perplexity(Engine& engine, std::string_view text, std::int64_t window,
                              const EvalProgress& progress) {
    STRATA_ASSIGN(const eval::Text input, eval::Text::create(engine, text, window));
    const std::int64_t total = input.predictions();
    eval::MeanOf nats;
    while (nats.count() < total) {
        const auto tokens = input.at(nats.count());
        STRATA_TRY(eval::visit_rows(
            engine, tokens, [&](std::size_t i, std::span<const float> row) -> Status {
                const double value = eval::nats(row, tokens[i + 1]);
                if (!std::isfinite(value)) {
                    return STRATA_ERROR(
                        quote(engine.info().file), ": the logits after token ", nats.count(),
                        " of the text are not finite: its next token has ", value, " nats");
                }
                nats.add(value);
                if (!progress || progress(nats.count(), total)) return Ok{};
                return STRATA_ERROR("interrupted after ", nats.count(), " of ", total,
                                    " predictions");
            }));
    }
    Perplexity out;
    out.tokens = static_cast<std::int64_t>(input.tokens.size());
    out.window = input.window;
    out.nats = nats.mean();
    out.perplexity.value = std::exp(out.nats.value);
    out.perplexity.error = out.perplexity.value * out.nats.error;
    out.bits_per_byte = nats.sum() / std::numbers::ln2 / static_cast<double>(text.size());
    return out;
}

}  // namespace strata
