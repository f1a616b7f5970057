// The weights of one model as typed fields, in memory that its device reads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "device/tensor.h"
#include "gguf/reader.h"
#include "model/config.h"
#include "model/residency.h"
#include "model/row_reader.h"
#include "op/experts.h"
#include "op/weight.h"

namespace strata::model {

struct HyperConnectionWeights {
    op::Gain norm = nullptr;
    op::Weight down;
    op::Weight up;
    op::Weight inject;  // empty in mixers
};

struct DeltaNetWeights {
    op::Weight qkv;
    op::Weight gate;
    op::Weight beta;
    op::Weight alpha;
    const float* conv = nullptr;
    const float* decay_rate = nullptr;
    const float* decay_bias = nullptr;
    op::Gain norm = nullptr;
    op::Weight out;
};

struct AttentionWeights {
    op::Weight query;
    op::Weight key;
    op::Weight value;
    op::Weight out;
    op::Weight index_query;
    op::Weight index_key;
    op::Gain query_norm = nullptr;
    op::Gain key_norm = nullptr;
    op::Gain index_query_norm = nullptr;
    op::Gain index_key_norm = nullptr;
};

struct ExpertWeights {
    op::Weight router;
    op::ExpertTable table;
    op::Weight shared_scale;
    op::Weight shared_gate;
    op::Weight shared_up;
    op::Weight shared_down;
};

struct LayerWeights {
    HyperConnectionWeights attention_read;
    HyperConnectionWeights experts_read;
    std::optional<DeltaNetWeights> delta_net;  // one of these two
    std::optional<AttentionWeights> attention;
    ExpertWeights experts;
};

struct NgramWeights {
    op::Weight table;
    StoredTable stored;  // the same, in its file
    op::Weight key;
    op::Weight value;
    op::Gain norm_key = nullptr;
    op::Gain norm_query = nullptr;
    op::Gain norm_conv = nullptr;
    const float* conv = nullptr;
};

struct MtpWeights {
    op::Gain norm_embedding = nullptr;
    op::Gain norm_hidden = nullptr;
    op::Weight fuse;
    LayerWeights layer;
    HyperConnectionWeights mixer;
    op::Weight head;  // its own, or the model's
    // The token of each row of the head, ascending; empty where it has a row for every token.
    std::vector<std::int32_t> token_of_row;
    VectorView<const std::int64_t> token_of_row_on_device;  // the same in the device's memory
};

// Bytes that the weights take while a model runs: all tensors but the n-gram table, of which a few
// rows are read where they lie.
std::uint64_t weight_bytes(const gguf::File& file, const Config& config);

// Error: they are more than `available`.
Status check_room(const gguf::File& file, const Config& config, std::uint64_t available);

// Matrices stay where the file is mapped, or in the device's copy of it; vectors are decoded into
// buffers that this owns, as are the addresses of experts. The file must outlive it.
class Weights {
  public:
    // Binds every tensor of `config` in `file`; the n-gram table gets an address on the device
    // where `ngram_resident` is set. Errors name the tensor that is missing, misshapen or of a type
    // that its place cannot hold.
    static Result<Weights> bind(const gguf::File& file, const Config& config,
                                device::Device& device, device::Queue& queue, bool ngram_resident);

    // Binds the MTP layer alone, from another file than the rest. Errors: likewise.
    Status bind_mtp(const gguf::File& file, const Config& config, device::Device& device,
                    device::Queue& queue);

    op::Weight embedding;
    op::Weight head;
    HyperConnectionWeights mixer;
    std::vector<LayerWeights> layers;
    std::optional<NgramWeights> ngram;
    std::optional<MtpWeights> mtp;
    Residency residency;  // of the experts of `layers`, then of the MTP layer's

  private:
    friend class Binder;
    std::vector<device::Buffer> buffers_;
};

}  // namespace strata::model
