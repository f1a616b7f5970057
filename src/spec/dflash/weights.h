// The weights of one draft as typed fields, in memory that its device reads.
#pragma once

#include <vector>

#include "device/device.h"
#include "gguf/reader.h"
#include "op/dflash_block.h"
#include "spec/dflash/config.h"

namespace strata::dflash {

// Matrices stay where the file is mapped, or in the device's copy of it; vectors are decoded into
// buffers that this owns. The file must outlive it.
class Weights {
  public:
    // Binds every tensor of `config` in `file`. Errors: as check_tensors; a draft vocabulary's map
    // that does not ascend or leaves the vocabulary; no memory.
    static Result<Weights> bind(const gguf::File& file, const Config& config,
                                device::Device& device, device::Queue& queue);

    op::Weight fuse;
    op::Gain fuse_norm = nullptr;
    op::Gain norm = nullptr;
    op::Weight selector;
    op::Weight predecessor;
    op::Weight successor;
    // Without their cells.
    std::vector<op::DflashLayer> layers;
    // Each empty where the draft takes the target's. token_of_row is empty where the head has a row
    // for every token.
    op::Weight embedding;
    op::Weight head;
    VectorView<const std::int64_t> token_of_row;

  private:
    friend class Binder;
    std::vector<device::Buffer> buffers_;
};

}  // namespace strata::dflash
