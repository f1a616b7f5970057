// Where experts lie, and that it changes nothing but the addresses that kernels read.

#include "model/residency.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "quant/type.h"
#include "tests/model/tiny_target.h"
#include "tests/support/backends.h"
#include "tests/support/compare.h"

namespace strata::test {
namespace {

using model::ExpertSlot;

constexpr std::size_t kExperts = 3;

// Three layers' worth of places, which nothing reads.
ExpertSlot place(std::size_t layer, std::size_t expert) {
    static std::array<std::byte, 9 * kExperts> memory;
    const std::byte* at = memory.data() + 3 * (layer * kExperts + expert);
    return {at, at + 1, at + 2};
}

struct Case {
    Backend& backend;
    std::unique_ptr<device::Queue> queue = backend.device->make_queue();
    model::Residency residency;
    std::array<op::ExpertTable, 2> tables;

    explicit Case(Backend& with) : backend(with) {
        for (std::size_t l = 0; l < tables.size(); ++l) {
            std::vector<ExpertSlot> slots;
            for (std::size_t e = 0; e < kExperts; ++e) slots.push_back(place(l, e));
            EXPECT_TRUE(residency.add_layer(slots, *backend.device, *queue, tables[l]).ok());
        }
    }
    void move(std::int64_t layer, std::int64_t expert, const std::optional<ExpertSlot>& to) {
        residency.move(layer, expert, to, *backend.device, *queue);
    }
    // What kernels read.
    ExpertSlot read(std::size_t layer, std::size_t expert) {
        const auto at = [&](const std::byte* const* addresses) {
            const std::byte* address = nullptr;
            backend.device->download(*queue, std::as_writable_bytes(std::span(&address, 1)),
                                     reinterpret_cast<const std::byte*>(addresses + expert));
            return address;
        };
        const op::ExpertTable& table = tables[layer];
        return {at(table.gate_at), at(table.up_at), at(table.down_at)};
    }
};

TEST(Residency, addresses_that_kernels_read_are_those_of_the_slots) {
    for (TestBackend& backend : backends()) {
        Case one(backend.backend);
        EXPECT_EQ(one.residency.layers(), 2);
        for (std::size_t l = 0; l < 2; ++l) {
            EXPECT_EQ(one.tables[l].count, 3);
            for (std::size_t e = 0; e < kExperts; ++e) {
                EXPECT_EQ(one.read(l, e), place(l, e));
                EXPECT_EQ(one.residency.find(std::int64_t(l), std::int64_t(e)), place(l, e));
            }
        }
    }
}

TEST(Residency, a_move_changes_the_addresses_of_one_expert_and_not_where_they_are_kept) {
    for (TestBackend& backend : backends()) {
        Case one(backend.backend);
        const auto before = one.tables;
        one.move(1, 1, place(2, 0));
        EXPECT_EQ(one.tables[1].gate_at, before[1].gate_at);
        for (std::size_t l = 0; l < 2; ++l) {
            for (std::size_t e = 0; e < kExperts; ++e) {
                const bool moved = l == 1 && e == 1;
                EXPECT_EQ(one.read(l, e), moved ? place(2, 0) : place(l, e));
            }
        }
        EXPECT_EQ(one.residency.find(1, 1), place(2, 0));
        EXPECT_TRUE(one.residency.all_in_slots().ok());
    }
}

TEST(Residency, an_expert_elsewhere_has_no_address_and_is_named) {
    for (TestBackend& backend : backends()) {
        Case one(backend.backend);
        one.move(1, 2, std::nullopt);
        one.move(0, 1, std::nullopt);
        one.move(0, 1, std::nullopt);  // it is already
        EXPECT_EQ(one.residency.find(0, 1), std::nullopt);
        EXPECT_EQ(one.read(0, 1), ExpertSlot{});
        const Status status = one.residency.all_in_slots();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().message,
                  "expert 1 of layer 0 is outside the memory that the device reads, one of 2, "
                  "wanted 0");
        one.move(0, 1, place(0, 1));
        EXPECT_FALSE(one.residency.all_in_slots().ok());
        one.move(1, 2, place(1, 2));
        EXPECT_TRUE(one.residency.all_in_slots().ok());
        EXPECT_EQ(one.read(1, 2), place(1, 2));
    }
}

// A copy of what lies in a slot.
struct Copied {
    std::vector<device::Buffer> memory;
    ExpertSlot slot;

    Copied(const ExpertSlot& from, const op::ExpertTable& table, std::int64_t width,
           device::Device& device, device::Queue& queue) {
        const auto copy = [&](const std::byte* matrix, quant::Type type, std::int64_t rows,
                              std::int64_t cols) {
            const auto row = quant::row_bytes(type, static_cast<std::uint64_t>(cols)).value();
            const auto bytes = static_cast<std::size_t>(rows) * row;
            memory.push_back(device.allocate(bytes).value());
            device.copy(queue, memory.back().data(), matrix, bytes);
            return memory.back().as<const std::byte>();
        };
        slot.gate = copy(from.gate, table.gate_type, table.hidden, width);
        slot.up = copy(from.up, table.up_type, table.hidden, width);
        slot.down = copy(from.down, table.down_type, width, table.hidden);
    }
};

// Copies of all experts of a layer, which lie elsewhere from then on.
std::vector<Copied> take_out(model::Target& target, std::int64_t layer,
                             const op::ExpertTable& table, device::Device& device) {
    std::vector<Copied> copies;
    for (std::int64_t e = 0; e < table.count; ++e) {
        const ExpertSlot from = target.residency().find(layer, e).value();
        copies.emplace_back(from, table, target.config().hidden, device, target.queue());
        target.residency().move(layer, e, std::nullopt, device, target.queue());
    }
    return copies;
}

// Windows are recorded where a queue records: what was recorded before the move finds the expert
// too.
TEST(Residency, an_expert_in_another_slot_gives_the_same_bits_and_one_elsewhere_none) {
    const TinyTarget made({.type = quant::Type::q8_0});
    for (TestBackend& backend : backends()) {
        device::Device& device = *backend.backend.device;
        auto target = model::Target::load(gguf::File::open(made.path()).value(), device,
                                          backend.backend.ops, 16)
                          .value();
        const Tokens tokens = random_tokens("moves", 4, target->config());
        auto sequence = target->make_sequence({64, op::CacheType::f16, true}).value();
        model::StepRequest request;
        request.tokens = tokens;
        request.window = true;
        request.logits = model::LogitRows::all;
        const auto logits = [&] {
            const auto step = target->step(sequence, request).value();
            target->drop(sequence);
            return std::vector<float>(step.logits.data, step.logits.data + step.logits.size());
        };
        std::vector<float> want;
        for (int submitted_then_captured = 0; submitted_then_captured < 2;
             ++submitted_then_captured) {
            want = logits();
        }
        model::Residency& residency = target->residency();
        const auto& table = target->weights().layers.front().experts.table;
        const std::vector<Copied> copies = take_out(*target, 0, table, device);
        EXPECT_EQ(residency.layers(), target->config().layers + 1);
        EXPECT_FALSE(target->step(sequence, request).ok());
        const auto move_to_copies = [&](std::int64_t turn) {
            for (std::int64_t e = 0; e < table.count; ++e) {
                const auto copy = static_cast<std::size_t>((e + turn) % table.count);
                residency.move(0, e, copies[copy].slot, device, target->queue());
            }
        };
        move_to_copies(1);
        EXPECT_NE(logits(), want) << "another expert's matrices were not read";
        move_to_copies(0);
        expect_same_bits(backend.name, logits(), want);
    }
}

// The layer is the last of the table; chains are recorded where a queue records.
TEST(Residency, guesses_and_their_rows_want_every_expert_of_the_mtp_layer_in_a_slot) {
    const TinyTarget made({.type = quant::Type::q8_0});
    for (TestBackend& backend : backends()) {
        device::Device& device = *backend.backend.device;
        auto target = model::Target::load(gguf::File::open(made.path()).value(), device,
                                          backend.backend.ops, 16)
                          .value();
        const Tokens tokens = random_tokens("mtp moves", 3, target->config());
        auto sequence = target->make_sequence({64, op::CacheType::f16, true}).value();
        model::StepRequest request;
        request.tokens = tokens;
        request.window = true;
        ASSERT_TRUE(target->step(sequence, request).ok());
        target->commit(sequence, 3);
        model::MtpDraft want;
        for (int submitted_then_captured = 0; submitted_then_captured < 2;
             ++submitted_then_captured) {
            want = target->draft(sequence, 17, 3, 0).value();
        }
        auto other = target->make_sequence({64, op::CacheType::f16, true}).value();
        ASSERT_TRUE(target->step(other, request).ok());
        const std::int64_t last = target->residency().layers() - 1;
        const auto& table = target->weights().mtp->layer.experts.table;
        const std::vector<Copied> copies = take_out(*target, last, table, device);

        const model::LogitSink sink = [](MatrixView<const float>) { return Status(Ok{}); };
        EXPECT_FALSE(target->draft(sequence, 17, 3, 0).ok());
        EXPECT_FALSE(target->commit(other, 3, sink).ok());
        EXPECT_EQ(other.length(), 0);
        for (std::int64_t e = 0; e < table.count; ++e) {
            target->residency().move(last, e, copies[static_cast<std::size_t>(e)].slot, device,
                                     target->queue());
        }
        EXPECT_TRUE(target->commit(other, 3, sink).ok());
        EXPECT_EQ(other.length(), 3);
        const auto got = target->draft(sequence, 17, 3, 0).value();
        EXPECT_EQ(got.path, want.path) << backend.name;
        expect_same_bits(backend.name, got.confidence, want.confidence);
    }
}

}  // namespace
}  // namespace strata::test
