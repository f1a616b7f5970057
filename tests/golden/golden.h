// The golden answers that the tests compare with. tests/golden/<name>/ holds a random checkpoint in
// the public layout (target/) and what references say of it: golden.bin and golden.json, unpacked
// by tools/reference/golden.py. tests/golden/README.md lists the keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace strata {

// tests/golden/<name>, where <name> is "tiny" or "odd".
std::string golden_directory(const std::string& name);

// A key that is missing or of another type ends the test program with a sentence.
class Golden {
  public:
    static Golden load(const std::string& name);

    bool has(const std::string& key) const { return arrays_.contains(key); }
    std::vector<std::string> keys() const;
    // Values in C order; valid while this lives, moved or not.
    std::span<const float> floats(const std::string& key) const;
    std::span<const std::int32_t> ints(const std::string& key) const;
    std::vector<std::int64_t> shape(const std::string& key) const;

  private:
    struct Array {
        bool integer;
        std::vector<std::int64_t> shape;
        std::size_t first;  // of the file, in values
        std::size_t count;
    };
    const Array& find(const std::string& key, bool integer) const;

    std::string name_;
    std::vector<float> floats_;       // golden.bin read as floats,
    std::vector<std::int32_t> ints_;  // and as integers
    std::map<std::string, Array> arrays_;
};

}  // namespace strata
