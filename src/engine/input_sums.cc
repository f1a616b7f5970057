// What the matrices of a model are multiplied with.
#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "engine/parts.h"

namespace strata {
namespace {

// Tells matrices apart by where they start in the mapped file.
class Adder final : public device::InputObserver {
  public:
    Adder(const gguf::File& file, InputSums& sums) : sums_(sums) {
        for (const gguf::Tensor& tensor : file.tensors()) tensors_.push_back(&tensor);
        std::sort(tensors_.begin(), tensors_.end(),
                  [](const auto* a, const auto* b) { return a->data.data() < b->data.data(); });
    }

    void input(const std::byte* weight, std::int64_t first_column,
               std::span<const float> x) override {
        const auto [found, is_new] = places_.try_emplace(weight);
        Place& place = found->second;
        if (is_new) find(weight, place);
        if (first_column > 0) {
            add_later(place, first_column, x);
            return;
        }
        InputSum& sum = *place.sum;
        float* squares = sum.squares.data() + place.part * sum.width;
        for (std::size_t i = 0; i < x.size(); ++i) squares[i] += x[i] * x[i];
        sum.counts[static_cast<std::size_t>(place.part)] += 1;
        ++place.inputs;
    }

    // A matrix whose halves meet inputs of their own, and not as many, has one count: that of its
    // first columns. The others' sums are brought to it.
    void finish() {
        for (auto& [weight, place] : places_) {
            if (place.later.empty()) continue;
            const float scale =
                static_cast<float>(place.inputs) / static_cast<float>(place.later_inputs);
            float* squares = place.sum->squares.data() + place.part * place.sum->width;
            for (std::size_t i = 0; i < place.later.size(); ++i) {
                squares[static_cast<std::size_t>(place.later_column) + i] += scale * place.later[i];
            }
        }
    }

  private:
    struct Place {
        InputSum* sum = nullptr;
        std::int64_t part = 0;
        std::int64_t inputs = 0;
        std::int64_t later_column = 0;
        std::int64_t later_inputs = 0;
        std::vector<float> later;
    };

    void find(const std::byte* weight, Place& place) {
        const auto after = std::upper_bound(
            tensors_.begin(), tensors_.end(), weight,
            [](const std::byte* at, const auto* tensor) { return at < tensor->data.data(); });
        STRATA_CHECK(after != tensors_.begin());
        const gguf::Tensor& tensor = **std::prev(after);
        // Of experts, the third dimension counts them.
        const std::uint64_t parts = tensor.dimension(2);
        const auto offset = static_cast<std::uint64_t>(weight - tensor.data.data());
        STRATA_CHECK(offset < tensor.data.size());
        place.part = static_cast<std::int64_t>(offset / (tensor.data.size() / parts));
        place.sum = &sums_[tensor.name];
        if (!place.sum->counts.empty()) return;
        place.sum->width = static_cast<std::int64_t>(tensor.shape[0]);
        place.sum->squares.resize(parts * tensor.shape[0]);
        place.sum->counts.resize(parts);
    }

    static void add_later(Place& place, std::int64_t column, std::span<const float> x) {
        place.later.resize(x.size());
        place.later_column = column;
        for (std::size_t i = 0; i < x.size(); ++i) place.later[i] += x[i] * x[i];
        ++place.later_inputs;
    }

    InputSums& sums_;
    std::vector<const gguf::Tensor*> tensors_;  // by address
    std::unordered_map<const std::byte*, Place> places_;
};

// In chunks, every row through the head, and through the whole MTP layer where it is kept.
Status read_all(model::Target& target, model::Sequence& sequence,
                std::span<const std::int32_t> tokens, std::int64_t chunk) {
    const model::LogitSink unwanted = [](MatrixView<const float>) { return Status(Ok{}); };
    while (!tokens.empty()) {
        const auto rows = std::min(static_cast<std::size_t>(chunk), tokens.size());
        model::StepRequest request;
        request.tokens = tokens.first(rows);
        request.logits = model::LogitRows::all;
        request.logit_sink = &unwanted;
        STRATA_TRY(target.step(sequence, request));
        const auto run = static_cast<std::int64_t>(rows);
        if (sequence.options().mtp) {
            STRATA_TRY(target.commit(sequence, run, unwanted));
        } else {
            target.commit(sequence, run);
        }
        tokens = tokens.subspan(rows);
    }
    return Ok{};
}

}  // namespace

Status Engine::add_input_sums(std::span<const std::int32_t> tokens, InputSums& sums) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (count < 1 || count > parts_->context) {
        return STRATA_ERROR("there are ", count, " tokens, wanted 1 to the context of ",
                            parts_->context);
    }
    model::Target& target = *parts_->target;
    const bool mtp = parts_->info.has_mtp;
    STRATA_ASSIGN(model::Sequence sequence,
                  target.make_sequence(parts_->sequence_options(count, mtp)));
    Adder adder(target.file(), sums);
    if (!target.observe(&adder)) {
        return STRATA_ERROR("this backend does not show what weights are multiplied with");
    }
    const Status status = read_all(target, sequence, tokens, parts_->options.chunk);
    target.observe(nullptr);
    STRATA_TRY(status);
    adder.finish();
    return Ok{};
}

}  // namespace strata
