// Checkpoints in the public layout that tests make, change and write.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata::test {

struct HfTensor {
    std::string dtype;  // "BF16", "F32", "I64", ...
    std::vector<std::uint64_t> shape;
    std::string bytes;

    // Of a BF16, F32 or I64 tensor.
    std::vector<float> floats() const;
};

HfTensor bf16_tensor(std::vector<std::uint64_t> shape, const std::vector<float>& values);
HfTensor f32_tensor(std::vector<std::uint64_t> shape, const std::vector<float>& values);

struct HfCheckpoint {
    nlohmann::ordered_json config;
    std::map<std::string, HfTensor> tensors;

    // config.json and model.safetensors of a directory.
    static HfCheckpoint load(const std::string& directory);
    // Random values in [-2, 2) for every tensor that `config` asks for, named as releases name them
    // (prefix "model.", experts one by one, two n-gram shards, hash constants, MTP).
    static HfCheckpoint random(const nlohmann::ordered_json& config);

    // Into `directory`, in `files` files; more than one with an index.
    void write(const std::string& directory, int files = 1) const;

    const HfTensor& at(const std::string& name) const { return tensors.at(name); }
    // The same model in the other public layout: text_config, the prefix model.language_model.,
    // experts fused in the trunk and in the MTP layer, the n-gram table in one tensor.
    HfCheckpoint other_layout() const;
    void rename_prefix(const std::string& from, const std::string& to);
};

// A small model of which no two sizes are equal: 5 value heads on each of 3 key heads, 3-grams in
// layer 2 of 4, attention in layers 1 and 3, one MTP layer. Block formats do not fit it.
nlohmann::ordered_json small_config();
// The same with widths that blocks of 32 divide.
nlohmann::ordered_json block_config();

}  // namespace strata::test
