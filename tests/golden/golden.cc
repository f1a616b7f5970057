#include "tests/golden/golden.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace strata {
namespace {

[[noreturn]] void fail(const std::string& sentence) {
    std::fprintf(stderr, "golden: %s\n", sentence.c_str());
    std::exit(1);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(path + " cannot be read");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string golden_directory(const std::string& name) { return STRATA_GOLDEN_DIRECTORY "/" + name; }

Golden Golden::load(const std::string& name) {
    Golden golden;
    golden.name_ = name;
    const std::string directory = golden_directory(name);
    const std::string data = read_file(directory + "/golden.bin");
    golden.floats_.resize(data.size() / 4);
    golden.ints_.resize(data.size() / 4);
    std::memcpy(golden.floats_.data(), data.data(), golden.floats_.size() * 4);
    std::memcpy(golden.ints_.data(), data.data(), golden.ints_.size() * 4);
    const auto index = nlohmann::json::parse(read_file(directory + "/golden.json"));
    for (const auto& [key, entry] : index.items()) {
        Array array;
        array.integer = entry.at("dtype") == "i32";
        array.shape = entry.at("shape").get<std::vector<std::int64_t>>();
        array.first = entry.at("offset").get<std::size_t>() / 4;
        array.count = 1;
        for (const std::int64_t size : array.shape) array.count *= static_cast<std::size_t>(size);
        if (array.first + array.count > golden.floats_.size()) {
            fail(name + ": " + key + " passes the end of golden.bin");
        }
        golden.arrays_.emplace(key, std::move(array));
    }
    return golden;
}

std::vector<std::string> Golden::keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, array] : arrays_) keys.push_back(key);
    return keys;
}

const Golden::Array& Golden::find(const std::string& key, bool integer) const {
    const auto found = arrays_.find(key);
    if (found == arrays_.end()) fail(name_ + " has no " + key);
    if (found->second.integer != integer) fail(name_ + ": " + key + " is of the other type");
    return found->second;
}

std::span<const float> Golden::floats(const std::string& key) const {
    const Array& array = find(key, false);
    return std::span(floats_).subspan(array.first, array.count);
}

std::span<const std::int32_t> Golden::ints(const std::string& key) const {
    const Array& array = find(key, true);
    return std::span(ints_).subspan(array.first, array.count);
}

std::vector<std::int64_t> Golden::shape(const std::string& key) const {
    const auto found = arrays_.find(key);
    if (found == arrays_.end()) fail(name_ + " has no " + key);
    return found->second.shape;
}

}  // namespace strata
