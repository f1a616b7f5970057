#include "convert/source.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace strata::convert {
namespace {

using safetensors::Dtype;
using safetensors::Tensor;

constexpr std::array<std::string_view, 4> kTextPrefixes = {"model.language_model.",
                                                           "language_model.model.", "model.", ""};
constexpr std::array<std::string_view, 4> kMtpPrefixes = {
    "mtp.", "model.mtp.", "model.language_model.mtp.", "language_model.mtp."};
constexpr std::array<std::string_view, 3> kHeadNames = {
    "lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kFusion = "fc.weight";  // of a draft

// The vision tower and buffers that are computed.
bool ignorable(std::string_view name) {
    for (const std::string_view prefix : {"model.visual.", "visual.", "model.vision_tower."}) {
        if (name.starts_with(prefix)) return true;
    }
    return name.ends_with("rotary_emb.inv_freq");
}

bool is_float(Dtype dtype) {
    return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

}  // namespace

std::string shape_text(const Shape& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
    return text + "]";
}

Result<Source> Source::create(const safetensors::Checkpoint& checkpoint) {
    Source source(checkpoint);
    for (const std::string_view prefix : kMtpPrefixes) {
        if (source.mtp_.empty() && source.count(prefix) > 0) source.mtp_ = prefix;
    }
    const auto prefix = std::find_if(
        kTextPrefixes.begin(), kTextPrefixes.end(),
        [&](std::string_view p) { return checkpoint.find(concat(p, kEmbedding)) != nullptr; });
    if (prefix == kTextPrefixes.end() && source.has_mtp()) {
        source.mtp_alone_ = true;
        return source;
    }
    if (prefix == kTextPrefixes.end()) {
        return STRATA_ERROR(quote(checkpoint.directory()), " has no tensor 'model.language_model.",
                            kEmbedding, "' and no 'model.", kEmbedding,
                            "', wanted a checkpoint of the text model");
    }
    source.text_ = *prefix;
    return source;
}

Result<Source> Source::create_draft(const safetensors::Checkpoint& checkpoint) {
    Source source(checkpoint);
    for (const std::string_view prefix : {"", "model."}) {
        if (checkpoint.find(concat(prefix, kFusion)) == nullptr) continue;
        source.text_ = prefix;
        return source;
    }
    return STRATA_ERROR(quote(checkpoint.directory()), " has no tensor '", kFusion,
                        "' and no 'model.", kFusion, "', wanted a checkpoint of a DFlash2 draft");
}

std::string Source::text_name(std::string_view name) const { return concat(text_, name); }

std::string Source::mtp_name(std::string_view name) const { return concat(mtp_, name); }

std::string Source::head_name() const {
    for (const std::string_view name : kHeadNames) {
        if (checkpoint_->find(name) != nullptr) return std::string(name);
    }
    return std::string(kHeadNames[0]);
}

const Tensor* Source::find(const std::string& full_name) const {
    return checkpoint_->find(full_name);
}

Result<const Tensor*> Source::want(const std::string& full_name, const std::vector<Shape>& shapes) {
    const Tensor* tensor = checkpoint_->find(full_name);
    if (tensor == nullptr) {
        return STRATA_ERROR(quote(checkpoint_->directory()), " has no tensor ", quote(full_name),
                            ", wanted one of shape ", shape_text(shapes[0]));
    }
    if (!is_float(tensor->dtype)) {
        return STRATA_ERROR("tensor ", quote(full_name), " is of type ", tensor->dtype_name,
                            ", wanted F32, F16 or BF16 (quantized checkpoints are not converted)");
    }
    if (std::find(shapes.begin(), shapes.end(), tensor->shape) == shapes.end()) {
        return STRATA_ERROR("tensor ", quote(full_name), " has the shape ",
                            shape_text(tensor->shape), ", wanted ", shape_text(shapes[0]),
                            " by config.json");
    }
    used_.insert(tensor->name);
    return tensor;
}

Result<std::vector<std::uint64_t>> Source::want_ints(const std::string& full_name,
                                                     std::uint64_t count) {
    const Tensor* tensor = checkpoint_->find(full_name);
    if (tensor == nullptr) {
        return STRATA_ERROR(quote(checkpoint_->directory()), " has no tensor ", quote(full_name),
                            ", wanted it beside the hash's other constants");
    }
    if (tensor->shape != Shape{count}) {
        return STRATA_ERROR("tensor ", quote(full_name), " has the shape ",
                            shape_text(tensor->shape), ", wanted [", count, "] by config.json");
    }
    STRATA_ASSIGN(const auto numbers, safetensors::read_ints(*tensor));
    std::vector<std::uint64_t> out;
    for (const std::int64_t n : numbers) {
        if (n < 0) {
            return STRATA_ERROR("tensor ", quote(full_name), " holds ", n,
                                ", wanted numbers from 0 on");
        }
        out.push_back(static_cast<std::uint64_t>(n));
    }
    used_.insert(tensor->name);
    return out;
}

std::size_t Source::count(std::string_view full_prefix) const {
    const auto tensors = checkpoint_->tensors();
    return static_cast<std::size_t>(
        std::count_if(tensors.begin(), tensors.end(),
                      [&](const Tensor& t) { return t.name.starts_with(full_prefix); }));
}

Status Source::check_all_used() const {
    for (const Tensor& tensor : checkpoint_->tensors()) {
        const std::string_view name = tensor.name;
        if (used_.contains(name) || ignorable(name)) continue;
        if (std::any_of(left_out_.begin(), left_out_.end(),
                        [&](const std::string& prefix) { return name.starts_with(prefix); })) {
            continue;
        }
        return STRATA_ERROR("tensor ", quote(name), " of ", quote(checkpoint_->directory()),
                            " is no part of the model that config.json describes");
    }
    return Ok{};
}

}  // namespace strata::convert
