// The tensors of a checkpoint under the names that releases use (model.md 3.1 and 4.4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "safetensors/checkpoint.h"

namespace strata::convert {

using Shape = std::vector<std::uint64_t>;

std::string shape_text(const Shape& shape);

// Finds tensors, checks them and remembers which were asked for. Points into the checkpoint.
class Source {
  public:
    // Error: neither a text model in it nor an MTP layer.
    static Result<Source> create(const safetensors::Checkpoint& checkpoint);
    // Of a block draft. Error: no draft in it.
    static Result<Source> create_draft(const safetensors::Checkpoint& checkpoint);

    // Whether there are MTP tensors.
    bool has_mtp() const { return !mtp_.empty(); }
    // Whether there is no text model beside them.
    bool mtp_alone() const { return mtp_alone_; }

    // Full names: of the text model or draft ("layers.0.mlp.gate.weight"), of the MTP layer
    // ("fc_hidden.weight"), of the output head.
    std::string text_name(std::string_view name) const;
    std::string mtp_name(std::string_view name) const;
    std::string head_name() const;

    const safetensors::Tensor* find(const std::string& full_name) const;
    // A float tensor of one of the shapes. Errors name the tensor: missing, another dtype (of a
    // quantized checkpoint), another shape.
    Result<const safetensors::Tensor*> want(const std::string& full_name,
                                            const std::vector<Shape>& shapes);
    // An I64 tensor of [count] positive numbers.
    Result<std::vector<std::uint64_t>> want_ints(const std::string& full_name, std::uint64_t count);
    // How many tensors have names that begin so.
    std::size_t count(std::string_view full_prefix) const;

    // Tensors whose names begin so are left out on purpose.
    void leave_out(std::string full_prefix) { left_out_.push_back(std::move(full_prefix)); }
    // Every tensor that nothing asked for must be left out on purpose or belong to a part that the
    // text model does without (the vision tower).
    Status check_all_used() const;

  private:
    explicit Source(const safetensors::Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}

    const safetensors::Checkpoint* checkpoint_;
    std::string text_;  // prefix of the text model's names
    std::string mtp_;   // prefix of the MTP layer's, empty where there is none
    bool mtp_alone_ = false;
    std::unordered_set<std::string_view> used_;
    std::vector<std::string> left_out_;
};

}  // namespace strata::convert
