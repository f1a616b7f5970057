// The memory of one op call, watched: everything lies between guard bands, outputs start as poison,
// and inputs must come back as they went in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "op/weight.h"
#include "tests/support/backends.h"
#include "tests/support/weights.h"

namespace strata::test {

// All bits set: NaN as F32, F16 and BF16, a NaN scale in block formats, -1 as an integer. A kernel
// that reads what it may not read, or leaves an output out, thus shows it in its results.
inline constexpr std::byte kPoison{0xff};
inline constexpr std::size_t kGuardBytes = 64;

template <typename T>
bool is_poison(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        if (bytes[i] != kPoison) return false;
    }
    return true;
}

template <typename T>
T poison() {
    T value;
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = kPoison;
    return value;
}

// `label` names the case in failures. Every pointer given out lives as long as the Rig.
class Rig {
  public:
    Rig(TestBackend& backend, std::string label);

    // Those of the route that tests are on (weights.h).
    const op::Table& ops() const {
        const op::Table& ops = backend_.backend.ops;
        return PromptRoute::on() ? ops.for_prompts() : ops;
    }
    device::Queue& queue() { return *queue_; }
    const std::string& label() const { return label_; }
    // Whether kernels read the host's memory.
    bool on_host() const { return backend_.kind == "cpu"; }

    // Read by the op and not written.
    template <typename T>
    const T* input(const char* name, const std::vector<T>& values) {
        return reinterpret_cast<const T*>(place(name, Use::input, values.data(), bytes_of(values)));
    }
    template <typename T>
    MatrixView<const T> input(const char* name, const std::vector<T>& values, std::int64_t cols) {
        return {input(name, values), static_cast<std::int64_t>(values.size()) / cols, cols};
    }
    // As the device's kernels expect a matrix to lie.
    op::Weight weight(const char* name, const TestWeight& weight);
    const std::byte* matrix(const char* name, const std::vector<std::byte>& bytes, quant::Type type,
                            std::int64_t cols);
    // As it is stored.
    op::Weight table(const char* name, const TestWeight& weight);

    // Written whole by the op.
    template <typename T>
    MatrixView<T> output(const char* name, std::int64_t rows, std::int64_t cols) {
        const std::vector<T> values(static_cast<std::size_t>(rows * cols), poison<T>());
        return {reinterpret_cast<T*>(place(name, Use::output, values.data(), bytes_of(values))),
                rows, cols};
    }

    // Read and written, or written in part.
    template <typename T>
    T* state(const char* name, const std::vector<T>& values) {
        return reinterpret_cast<T*>(place(name, Use::state, values.data(), bytes_of(values)));
    }
    template <typename T>
    MatrixView<T> state(const char* name, const std::vector<T>& values, std::int64_t cols) {
        return {state(name, values), static_cast<std::int64_t>(values.size()) / cols, cols};
    }

    // Waits, then checks guard bands, inputs, and that outputs hold no poison.
    void finish();

    // What a region holds; `data` as given out above.
    template <typename T>
    std::vector<T> read(const T* data) {
        const Region& region = find(reinterpret_cast<const std::byte*>(data));
        std::vector<T> values(region.bytes / sizeof(T));
        download(region, reinterpret_cast<std::byte*>(values.data()), kGuardBytes, region.bytes);
        return values;
    }

  private:
    enum class Use { input, output, state };
    struct Region {
        std::string name;
        Use use;
        std::size_t bytes;
        std::vector<std::byte> before;  // inputs: what was placed
        device::Buffer buffer;
    };

    template <typename T>
    static std::size_t bytes_of(const std::vector<T>& values) {
        return values.size() * sizeof(T);
    }

    std::byte* place(const char* name, Use use, const void* values, std::size_t bytes);
    const Region& find(const std::byte* data) const;
    void download(const Region& region, std::byte* to, std::size_t from, std::size_t bytes);
    void check(const Region& region);

    TestBackend& backend_;
    std::string label_;
    std::unique_ptr<device::Queue> queue_;
    std::vector<Region> regions_;
};

}  // namespace strata::test
