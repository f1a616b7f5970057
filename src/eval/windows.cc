#include "eval/windows.h"

#include <algorithm>

#include "base/text.h"

namespace strata::eval {
namespace {

constexpr std::int64_t kWindowMin = 2;

}  // namespace

Result<Text> Text::create(const Engine& engine, std::string_view text, std::int64_t window) {
    const std::int64_t context = engine.info().context;
    Text out;
    out.window = window == 0 ? std::min(kEvalWindowDefault, context) : window;
    if (out.window < kWindowMin || out.window > context) {
        return STRATA_ERROR("windows are to have ", out.window, " tokens, wanted ", kWindowMin,
                            " to the context of ", context);
    }
    STRATA_ASSIGN(out.tokens, engine.tokenize(text));
    if (out.predictions() < 1) {
        return STRATA_ERROR("the text has ", out.tokens.size(),
                            " tokens, wanted at least 2: the second is the first that is "
                            "predicted");
    }
    return out;
}

std::span<const std::int32_t> Text::at(std::int64_t first) const {
    const auto rest = std::span(tokens).subspan(static_cast<std::size_t>(first));
    return rest.first(std::min(static_cast<std::size_t>(window), rest.size()));
}

Status visit_rows(Engine& engine, std::span<const std::int32_t> window, const RowVisit& visit) {
    const auto vocabulary = static_cast<std::size_t>(engine.info().vocabulary);
    LogitsRequest request;
    request.tokens.assign(window.begin(), window.end() - 1);
    std::size_t i = 0;
    return engine.logits(request, [&](std::span<const float> rows) -> Status {
        for (; !rows.empty(); rows = rows.subspan(vocabulary)) {
            STRATA_TRY(visit(i++, rows.first(vocabulary)));
        }
        return Ok{};
    });
}

}  // namespace strata::eval
