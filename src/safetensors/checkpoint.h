// Reading a checkpoint directory in the safetensors layout: model.safetensors, or the shards that
// model.safetensors.index.json lists. Every size is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace strata::safetensors {

inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
inline constexpr std::uint64_t kIndexBytesMax = kHeaderBytesMax;
inline constexpr std::size_t kDimensionsMax = 8;

// `other` stands for the formats that this build keeps by name only.
enum class Dtype { f32, f16, bf16, i64, other };

struct Tensor {
    std::string name;
    Dtype dtype = Dtype::other;
    std::string dtype_name;            // as the file spells it: "BF16"
    std::vector<std::uint64_t> shape;  // row-major: the last dimension is contiguous; empty: scalar
    std::span<const std::byte> data;   // in the mapped file, of any alignment
    std::size_t shard = 0;             // of Checkpoint::paths()

    // Product of the shape; fits int64.
    std::uint64_t elements() const;
};

// Owns the mappings; the data of its tensors is valid while it lives, moved or not.
class Checkpoint {
  public:
    // Errors: neither file is there, a shard is missing or outside the directory, a tensor that the
    // index names is in no shard, a malformed file.
    static Result<Checkpoint> open(const std::string& directory);

    // Null if there is none.
    const Tensor* find(std::string_view name) const;
    std::span<const Tensor> tensors() const { return tensors_; }
    const std::string& directory() const { return directory_; }
    std::span<const std::string> paths() const { return paths_; }

  private:
    Checkpoint() = default;
    Status add_file(const std::string& name);
    Status open_index();
    Status index();

    std::string directory_;
    std::vector<std::string> paths_;
    std::vector<MappedFile> files_;
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string_view, std::size_t> index_;
};

// Values [first, first + out.size()) in row-major order as floats. Errors: not a float dtype, the
// range passes the end.
Status read_floats(const Tensor& tensor, std::uint64_t first, std::span<float> out);

// All values of an I64 tensor. Errors: another dtype.
Result<std::vector<std::int64_t>> read_ints(const Tensor& tensor);

}  // namespace strata::safetensors
