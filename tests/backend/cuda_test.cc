// The CUDA device, and those of its ops that are exact: their results are the contract's to the
// bit. Skipped, and said so, where there is no device.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/support/rig.h"

namespace strata::test {
namespace {

class Cuda : public testing::Test {
  protected:
    void SetUp() override {
        if (backend_ == nullptr) GTEST_SKIP() << make_cuda_backend(0).error().message;
    }

    device::Device& device() { return *backend_->backend.device; }

    TestBackend* backend_ = cuda_backend();
};

TEST_F(Cuda, memory_starts_as_zeros_and_keeps_what_is_put_there) {
    const auto queue = device().make_queue();
    auto buffer = device().allocate(1000);
    ASSERT_TRUE(buffer.ok());
    std::vector<std::byte> got(1000, kPoison);
    device().download(*queue, got, buffer->data());
    EXPECT_EQ(got, std::vector<std::byte>(1000));

    std::vector<std::byte> put;
    for (int i = 0; i < 500; ++i) put.push_back(static_cast<std::byte>(i));
    device().upload(*queue, buffer->data(), put);
    device().copy(*queue, buffer->data() + 500, buffer->data(), 500);
    device().clear(*queue, buffer->data(), 10);
    device().download(*queue, got, buffer->data());
    EXPECT_TRUE(std::equal(put.begin(), put.end(), got.begin() + 500));
    std::fill_n(put.begin(), 10, std::byte{0});
    EXPECT_TRUE(std::equal(put.begin(), put.end(), got.begin()));
}

TEST_F(Cuda, more_memory_than_there_is_is_an_error_with_both_numbers) {
    const std::size_t bytes = std::size_t{1} << 50;
    const auto buffer = device().allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_NE(buffer.error().message.find(std::to_string(bytes)), std::string::npos);
    EXPECT_TRUE(device().allocate(1000).ok());
}

TEST_F(Cuda, a_device_that_is_not_there_is_an_error) {
    EXPECT_FALSE(make_cuda_backend(-1).ok());
    EXPECT_FALSE(make_cuda_backend(1000).ok());
}

TEST_F(Cuda, embed_gives_every_stream_the_table_row) {
    for (const quant::Type type : kTableTypes) {
        Random random("embed", static_cast<std::uint64_t>(type));
        const TestWeight table = random_weight(random, type, 37, 96);
        for (const std::int64_t rows : {1, 65}) {
            std::vector<std::int32_t> tokens;
            std::vector<float> want;
            for (std::int64_t t = 0; t < rows; ++t) {
                tokens.push_back(static_cast<std::int32_t>(random.integer(0, 36)));
                for (int s = 0; s < 3; ++s) {
                    want.insert(want.end(), table.row(tokens.back()),
                                table.row(tokens.back()) + 96);
                }
            }
            Rig rig(*backend_, "embed");
            const auto out = rig.output<float>("residual", rows, 3 * 96);
            rig.ops().embed({.tokens = {rig.input("tokens", tokens), rows},
                             .table = rig.table("table", table),
                             .streams = 3,
                             .residual = out},
                            rig.queue());
            rig.finish();
            expect_same_bits(std::string(quant::info(type).name), rig.read(out.data), want);
        }
    }
}

TEST_F(Cuda, ngram_gather_reads_the_rows_asked_for) {
    for (const quant::Type type : kTableTypes) {
        Random random("gather", static_cast<std::uint64_t>(type));
        const TestWeight table = random_weight(random, type, 101, 32);
        std::vector<std::int64_t> rows;
        std::vector<float> want;
        for (int i = 0; i < 9 * 4; ++i) {
            rows.push_back(random.integer(0, 100));
            want.insert(want.end(), table.row(rows.back()), table.row(rows.back()) + 32);
        }
        Rig rig(*backend_, "ngram_gather");
        const auto out = rig.output<float>("e", 9, 4 * 32);
        rig.ops().ngram_gather({rig.table("table", table), rig.input("rows", rows, 4), out},
                               rig.queue());
        rig.finish();
        expect_same_bits(std::string(quant::info(type).name), rig.read(out.data), want);
    }
}

TEST_F(Cuda, tables_in_types_of_blocks_give_what_their_formats_decode) {
    for (const quant::Type type : kBlockTypes) {
        Random random("tables of blocks", static_cast<std::uint64_t>(type));
        const TestWeight table = random_blocks(random, type, 3, 512);
        Rig rig(*backend_, "embed");
        const auto out = rig.output<float>("residual", 2, 512);
        rig.ops().embed({.tokens = {rig.input("tokens", std::vector<std::int32_t>{2, 0}), 2},
                         .table = rig.table("table", table),
                         .streams = 1,
                         .residual = out},
                        rig.queue());
        rig.finish();
        std::vector<float> want(table.row(2), table.row(2) + 512);
        want.insert(want.end(), table.row(0), table.row(0) + 512);
        expect_same_bits(std::string(quant::info(type).name), rig.read(out.data), want);
    }
}

// Where each byte went is read off two matrices: one of the low bytes of its place, one of the
// high ones.
TEST_F(Cuda, matrices_keep_the_bytes_of_every_row) {
    const auto queue = device().make_queue();
    for (const quant::Type type : kBlockTypes) {
        const quant::TypeInfo& info = quant::info(type);
        const auto row = static_cast<std::size_t>(5 * info.block_bytes);
        std::vector<std::size_t> places(3 * row);
        for (const int shift : {0, 8}) {
            std::vector<std::byte> bytes(places.size());
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                bytes[i] = static_cast<std::byte>(i >> shift & 255);
            }
            const auto matrix = device().resident_matrix(*queue, bytes, type, 5 * info.block);
            ASSERT_TRUE(matrix.ok());
            std::vector<std::byte> got(bytes.size());
            device().download(*queue, got, *matrix);
            for (std::size_t i = 0; i < got.size(); ++i) {
                places[i] |= std::to_integer<std::size_t>(got[i]) << shift;
            }
        }
        for (std::size_t r = 0; r < 3; ++r) {
            std::sort(places.begin() + r * row, places.begin() + (r + 1) * row);
        }
        for (std::size_t i = 0; i < places.size(); ++i) ASSERT_EQ(places[i], i) << info.name;
    }
}

// More of them than there are slices on their way, none waited for.
TEST_F(Cuda, copies_in_a_row_each_have_the_bytes_they_were_given) {
    const auto queue = device().make_queue();
    std::vector<const std::byte*> copies;
    for (int i = 0; i < 5; ++i) {
        std::vector<std::byte> bytes(1000, static_cast<std::byte>(i));
        copies.push_back(device().resident(*queue, bytes).value());
        std::fill(bytes.begin(), bytes.end(), std::byte{99});  // it has been read
    }
    for (int i = 0; i < 5; ++i) {
        std::vector<std::byte> got(1000);
        device().download(*queue, got, copies[static_cast<std::size_t>(i)]);
        EXPECT_EQ(got, std::vector<std::byte>(1000, static_cast<std::byte>(i)));
    }
}

// Once a kernel has not ended, nothing waits any more; the emulator ends the program where it does.
TEST_F(Cuda, work_that_does_not_end_is_a_failure_of_the_device_and_nothing_hangs) {
    if (!hang_cuda_after(-1)) GTEST_SKIP() << "a real device";
    {
        auto made = impatient_cuda_backend(std::chrono::milliseconds(40));
        ASSERT_TRUE(made.ok());
        device::Device& own = *made->device;
        const auto queue = own.make_queue();
        const auto buffer = std::move(own.allocate(200000)).value();
        std::vector<std::byte> matrix(3400);
        const auto resident = own.resident_matrix(*queue, matrix, quant::Type::q8_0, 3200);
        ASSERT_TRUE(resident.ok() && queue->status().ok());

        hang_cuda_after(0);
        for (const std::size_t size : {10, 200000}) {
            static_cast<void>(own.resident_matrix(*queue, matrix, quant::Type::q8_0, 3200));
            std::vector<std::byte> got(size, kPoison);
            own.download(*queue, got, buffer.data());
            EXPECT_EQ(got, std::vector<std::byte>(size));
        }
        const std::string want = "CUDA 0 failed: its work has not ended after 0.04 s";
        for (const Status& status :
             {queue->status(), Status(own.allocate(10).error()), Status(own.available().error())}) {
            ASSERT_FALSE(status.ok());
            EXPECT_NE(status.error().message.find("failed: its work has not ended after 0.04 s"),
                      std::string::npos)
                << status.error().message;
        }
        EXPECT_NE(queue->status().error().message.find(want), std::string::npos);
    }
    fail_cuda_after(-1);
}

// On both sides of what goes by way of pinned memory, or is taken by the driver, at once.
TEST_F(Cuda, transfers_of_any_size_have_every_byte) {
    const auto queue = device().make_queue();
    for (const std::size_t size : {65536, 65537, 200001}) {
        const auto buffer = std::move(device().allocate(size)).value();
        std::vector<std::byte> put(size);
        for (std::size_t i = 0; i < size; ++i) put[i] = static_cast<std::byte>(i % 251);
        device().upload(*queue, buffer.data(), put);
        const std::vector<std::byte> want = std::exchange(put, std::vector<std::byte>(size));
        std::vector<std::byte> got(size, kPoison);
        device().download(*queue, got, buffer.data());
        EXPECT_EQ(got, want) << size;
    }
}

// More than a driver takes ahead: the host waits for the device, and not without a limit.
TEST_F(Cuda, what_is_submitted_to_a_device_that_hangs_waits_with_a_limit) {
    if (!hang_cuda_after(-1)) GTEST_SKIP() << "a real device";
    const std::vector<std::byte> many(200000);
    for (const bool upload : {false, true}) {
        auto made = impatient_cuda_backend(std::chrono::milliseconds(40));
        ASSERT_TRUE(made.ok());
        device::Device& own = *made->device;
        const auto queue = own.make_queue();
        const auto buffer = std::move(own.allocate(many.size())).value();
        std::vector<std::byte> matrix(3400);
        hang_cuda_after(0);
        static_cast<void>(own.resident_matrix(*queue, matrix, quant::Type::q8_0, 3200));
        EXPECT_TRUE(queue->status().ok());
        if (upload) own.upload(*queue, buffer.data(), many);
        for (int i = 0; i < 3000; ++i) own.clear(*queue, buffer.data(), 10);
        EXPECT_FALSE(queue->status().ok());
        fail_cuda_after(-1);
    }
}

// What was made before the refusal is used the next time, and given back with the device.
TEST_F(Cuda, refused_pinned_memory_leaves_nothing_behind) {
    if (!refuse_cuda_pinned(0)) GTEST_SKIP() << "a real device";
    const std::size_t before = cuda_memory_taken();
    {
        auto made = impatient_cuda_backend(std::chrono::seconds(1));
        ASSERT_TRUE(made.ok());
        const auto queue = made->device->make_queue();
        const std::vector<std::byte> bytes(1000, std::byte{7});
        std::size_t taken = 0;
        for (int i = 0; i < 3; ++i) {
            refuse_cuda_pinned(1);
            const auto copy = made->device->resident(*queue, bytes);
            ASSERT_FALSE(copy.ok());
            EXPECT_NE(copy.error().message.find("of pinned host memory"), std::string::npos);
            if (i == 0) taken = cuda_memory_taken();
            EXPECT_EQ(cuda_memory_taken(), taken);
        }
        const auto copy = made->device->resident(*queue, bytes);
        ASSERT_TRUE(copy.ok());
        std::vector<std::byte> got(1000);
        made->device->download(*queue, got, *copy);
        EXPECT_EQ(got, bytes);
    }
    EXPECT_EQ(cuda_memory_taken(), before);
}

TEST_F(Cuda, stream_mean_rounds_as_the_contract_is_written) {
    constexpr std::int64_t kWidth = 33;
    constexpr int kStreams = 4;
    Random random("stream_mean");
    for (const bool inject : {false, true}) {
        const auto residual = random.floats(7 * kStreams * kWidth, -3, 3);
        const auto block_out = random.floats(7 * kWidth, -3, 3);
        const auto block_inject = random.floats(7 * kStreams, 0, 2);
        std::vector<float> want(7 * kWidth);
        for (std::size_t i = 0; i < want.size(); ++i) {
            const std::size_t t = i / kWidth;
            float sum = 0;
            for (std::size_t s = 0; s < kStreams; ++s) {
                float value = residual[(t * kStreams + s) * kWidth + i % kWidth];
                if (inject) value += block_inject[t * kStreams + s] * block_out[i];
                sum += value;
            }
            want[i] = sum * 0.25f;
        }
        Rig rig(*backend_, "stream_mean");
        op::StreamMean args;
        args.residual = rig.input("residual", residual, kStreams * kWidth);
        if (inject) {
            args.block_out = rig.input("block_out", block_out, kWidth);
            args.block_inject = rig.input("block_inject", block_inject, kStreams);
        }
        args.streams = kStreams;
        args.mean = rig.output<float>("mean", 7, kWidth);
        rig.ops().stream_mean(args, rig.queue());
        rig.finish();
        expect_same_bits("stream_mean", rig.read(args.mean.data), want);
    }
}

TEST_F(Cuda, shift_history_keeps_the_last_rows) {
    Random random("shift_history");
    constexpr std::int64_t kCols = 130;
    for (const std::int64_t n : {1, 3, 9}) {
        for (const std::int64_t rows : {1, 2, 9, 16}) {
            const auto history = random.floats(n * kCols, -1, 1);
            const auto window = random.floats(16 * kCols, -1, 1);
            auto all = history;
            all.insert(all.end(), window.begin(), window.begin() + rows * kCols);
            Rig rig(*backend_, "shift_history");
            const auto kept = rig.state("history", history, kCols);
            const op::ShiftedHistory one{kept.data, kept, rig.input("window", window, kCols)};
            rig.ops().shift_history({{&one, 1}, {rows}}, rig.queue());
            rig.finish();
            expect_same_bits("shift_history", rig.read(kept.data),
                             std::vector<float>(all.end() - n * kCols, all.end()));
        }
    }
}

// What is used again and again stays recorded, and the rest makes room.
TEST_F(Cuda, of_many_keys_those_in_use_stay_recorded) {
    const auto queue = backend_->backend.device->make_queue();
    int submitted = 0;
    const auto run = [&](std::int64_t key) {
        const std::array<std::int64_t, 1> keys{key};
        queue->run(keys, [&] { ++submitted; });
    };
    run(0);
    run(0);
    run(1);
    run(1);
    EXPECT_EQ(submitted, 4);
    for (std::int64_t key = 2; key < 600; ++key) {
        run(key);
        run(0);
    }
    EXPECT_EQ(submitted, 4 + 598);
    run(1);
    EXPECT_EQ(submitted, 4 + 598 + 1);
    EXPECT_TRUE(queue->status().ok());
}

}  // namespace
}  // namespace strata::test
