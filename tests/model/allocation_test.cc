// Decoding takes no memory from the heap once it is warm. The program's operator new is replaced by
// one that counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/model/tiny_target.h"

namespace {

std::atomic<std::int64_t> allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
    ++allocations;
    const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
    return std::aligned_alloc(alignment, size == 0 ? alignment : size);
}

// Inlined, the compiler would take it for the wrong partner of operator new.
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

constexpr std::size_t kPlain = alignof(std::max_align_t);

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
    void* memory = counted(bytes, alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_or_throw(bytes, kPlain); }
void* operator new[](std::size_t bytes) { return counted_or_throw(bytes, kPlain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted(bytes, kPlain);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace strata::test {
namespace {

// Steps of `rows` rows, `kept` of each committed, from a warm start to the end of the context.
std::int64_t allocations_of(quant::Type type, std::int64_t rows, std::int64_t kept) {
    TinyTarget target({.type = type, .threads = 3});
    model::Sequence sequence = target.sequence(true);
    const Tokens tokens = random_tokens("allocations", 64, target->config());
    const auto step = [&] {
        const bool window = rows > 1;
        const auto first = static_cast<std::size_t>(sequence.length() % 32);
        const auto result = target->step(
            sequence, {.tokens = std::span(tokens).subspan(first, static_cast<std::size_t>(rows)),
                       .window = window,
                       .logits = window ? model::LogitRows::all : model::LogitRows::last});
        EXPECT_TRUE(result.ok());
        target->commit(sequence, kept);
    };
    // Past the index budget, so that the selection runs too.
    while (sequence.length() < 60) step();
    const std::int64_t before = allocations;
    while (sequence.length() + rows <= sequence.context()) step();
    return allocations - before;
}

TEST(Allocation, a_warm_decode_step_allocates_nothing) {
    for (const auto type : {quant::Type::bf16, quant::Type::q8_0, quant::Type::q4_0}) {
        EXPECT_EQ(allocations_of(type, 1, 1), 0);
    }
}

TEST(Allocation, a_warm_window_that_is_kept_in_part_allocates_nothing) {
    EXPECT_EQ(allocations_of(quant::Type::q8_0, 4, 3), 0);
}

}  // namespace
}  // namespace strata::test
