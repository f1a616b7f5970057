#include <algorithm>

#include "base/text.h"
#include "eval/windows.h"
#include "gguf/writer.h"

namespace strata {
namespace {

using gguf::Value;

Status write_sums(const InputSums& sums, const ImportanceRequest& request, std::int64_t windows,
                  std::int64_t window) {
    gguf::Writer writer;
    const auto number = [](std::int64_t n) { return Value::of(static_cast<std::uint32_t>(n)); };
    writer.set("general.type", Value::string("imatrix"));
    // llama.cpp wants the key; where the text came from is nobody else's business.
    writer.set("imatrix.datasets", Value::array(std::vector<std::string>{"text"}));
    writer.set("imatrix.chunk_count", number(windows));
    writer.set("imatrix.chunk_size", number(window));
    for (const auto& [name, sum] : sums) {
        const auto parts = static_cast<std::uint64_t>(sum.counts.size());
        const std::uint64_t squares[] = {static_cast<std::uint64_t>(sum.width), parts};
        const std::uint64_t counts[] = {1, parts};
        STRATA_TRY(writer.add_tensor(concat(name, ".in_sum2"), quant::Type::f32, squares));
        STRATA_TRY(writer.add_tensor(concat(name, ".counts"), quant::Type::f32, counts));
    }
    STRATA_TRY(writer.begin(request.output));
    for (const auto& [name, sum] : sums) {
        STRATA_TRY(writer.write_tensor_data(std::as_bytes(std::span(sum.squares))));
        STRATA_TRY(writer.write_tensor_data(std::as_bytes(std::span(sum.counts))));
    }
    return writer.commit();
}

}  // namespace

Result<Importance> gather_importance(Engine& engine, const ImportanceRequest& request,
                                     const EvalProgress& progress) {
    STRATA_ASSIGN(const eval::Text text, eval::Text::create(engine, request.text, request.window));
    const auto total = static_cast<std::int64_t>(text.tokens.size());
    InputSums sums;
    std::int64_t windows = 0;
    for (std::int64_t first = 0; first < total; first += text.window) {
        STRATA_TRY(engine.add_input_sums(text.at(first), sums));
        ++windows;
        const std::int64_t done = std::min(first + text.window, total);
        if (!progress || progress(done, total)) continue;
        return STRATA_ERROR("interrupted after ", done, " of ", total, " tokens");
    }
    STRATA_TRY(write_sums(sums, request, windows, text.window));
    Importance out;
    out.tokens = total;
    out.window = text.window;
    out.tensors = static_cast<std::int64_t>(sums.size());
    for (const auto& [name, sum] : sums) {
        out.matrices += static_cast<std::int64_t>(sum.counts.size());
        out.matrices_unused += std::count(sum.counts.begin(), sum.counts.end(), 0.0f);
    }
    return out;
}

}  // namespace strata
