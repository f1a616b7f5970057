// What steps of a model must read and multiply, counted from its file.
#pragma once

#include <cstdint>
#include <vector>

#include "gguf/reader.h"
#include "model/config.h"
#include "op/sparse_attention.h"
#include "strata/bench.h"

namespace strata::bench {

// Multiply-adds by the numbers that the weights are stored in: whatever a kernel makes of them, it
// cannot be faster than the instructions for numbers of that width.
struct MultiplyAdds {
    double i8 = 0;  // formats of blocks
    double bf16 = 0;
    double f32 = 0;

    double all() const { return i8 + bf16 + f32; }
};

struct Work {
    BytesRead bytes;
    MultiplyAdds multiply_adds;

    void add(const Work& other);
    double bytes_ms(const MachineRates& rates) const;
    double multiply_adds_ms(const MachineRates& rates) const;
};

struct StepShape {
    std::int64_t first = 0;  // rows of the sequence before it
    std::int64_t rows = 0;
    std::int64_t logit_rows = 0;
};

// Of the cache of one layer of sparse attention, that a token after `length` reads at least: keys
// and values of what its index keeps, and the keys of all blocks.
double attention_bytes(const model::Config& config, op::CacheType cache, std::int64_t length);

class WorkCount {
  public:
    // Of a complete model; its MTP layer is left out, for nothing here runs it.
    WorkCount(const gguf::File& file, const model::Config& config, op::CacheType cache);

    // `experts_read`: how many different experts the rows chose, one number a layer.
    Work step(const StepShape& shape, const std::vector<std::int64_t>& experts_read) const;
    double head_bytes() const { return head_bytes_; }

  private:
    void add_state(const StepShape& shape, Work& work) const;

    model::Config config_;
    op::CacheType cache_;
    double dense_bytes_ = 0;
    double head_bytes_ = 0;
    double row_bytes_ = 0;              // of embedding and n-gram table, for one token
    std::vector<double> expert_bytes_;  // of one expert, by layer
    MultiplyAdds dense_;                // for one token
    MultiplyAdds head_;
    std::vector<MultiplyAdds> expert_;  // of one expert, by layer
};

}  // namespace strata::bench
