// op/accept.h on every backend in the build: the count that a text makes which goes token by token.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/everywhere.h"
#include "tests/support/rig.h"

namespace strata::test {
namespace {

// Of each row the token that follows it, -1 where that is not told.
struct Told {
    std::vector<std::int32_t> window;
    std::vector<std::int32_t> next;
    std::vector<std::int32_t> ends;
};

// Plain decoding in words: a row stays while each before it was followed by the next row's token
// and ended no text.
std::int64_t count_of(const Told& told) {
    std::int64_t kept = 0;
    std::int32_t text = told.window.front();
    for (std::size_t t = 0; t < told.window.size(); ++t) {
        if (told.window[t] != text) break;
        ++kept;
        text = told.next[t];
        if (std::count(told.ends.begin(), told.ends.end(), text) > 0) break;
    }
    return kept;
}

std::vector<std::int32_t> filled(std::vector<std::int32_t> ends) {
    ends.resize(op::kEndTokensMax, -1);
    return ends;
}

std::int64_t run_picked(TestBackend& backend, const Told& told) {
    Rig rig(backend, "accept, picked");
    std::vector<op::Picked> picked;
    for (const std::int32_t token : told.next) {
        const float none = std::numeric_limits<float>::quiet_NaN();
        picked.push_back({token < 0 ? told.window.back() : token, token < 0 ? none : 0.5F});
    }
    const auto rows = static_cast<std::int64_t>(told.window.size());
    op::Accept args;
    args.window = {rig.input("window", told.window), rows};
    args.picked = {rig.input("picked", picked), rows};
    args.ends = {rig.input("ends", filled(told.ends)), op::kEndTokensMax};
    args.rows = rig.output<std::int64_t>("rows", 1, 1).data;
    rig.ops().accept(args, rig.queue());
    rig.finish();
    return rig.read(args.rows).front();
}

// With the token as the best of a list, or as the largest of a row that has none.
std::int64_t run_drawn(TestBackend& backend, const Told& told, bool listed) {
    Rig rig(backend, "accept, drawn");
    const std::int64_t cols = 1 + op::kDrawnMax;
    const auto rows = static_cast<std::int64_t>(told.window.size());
    std::vector<op::Drawn> drawn(static_cast<std::size_t>(rows * cols));
    for (std::int64_t t = 0; t < rows; ++t) {
        const std::int32_t token = told.next[static_cast<std::size_t>(t)];
        op::Drawn* of_row = drawn.data() + t * cols;
        of_row[0].token = listed && token >= 0 ? token + 1 : token;
        if (listed) of_row[1].token = token;
        if (listed && token >= 0) of_row[2].token = token + 2;
    }
    op::Accept args;
    args.window = {rig.input("window", told.window), rows};
    args.drawn = rig.input("drawn", drawn, cols);
    args.ends = {rig.input("ends", filled(told.ends)), op::kEndTokensMax};
    args.rows = rig.output<std::int64_t>("rows", 1, 1).data;
    rig.ops().accept(args, rig.queue());
    rig.finish();
    return rig.read(args.rows).front();
}

void check_accept(const std::string& label, const Told& told) {
    const std::int64_t want = count_of(told);
    for (TestBackend& backend : backends()) {
        EXPECT_EQ(run_picked(backend, told), want) << backend.name << ", " << label;
        EXPECT_EQ(run_drawn(backend, told, false), want) << backend.name << ", " << label;
        EXPECT_EQ(run_drawn(backend, told, true), want) << backend.name << ", " << label;
    }
}

// Rows 10, 11, 12 ..., each followed by the next one's token.
Told all_right(std::int64_t rows) {
    Told told;
    for (std::int64_t t = 0; t < rows; ++t) {
        told.window.push_back(static_cast<std::int32_t>(10 + t));
        told.next.push_back(static_cast<std::int32_t>(11 + t));
    }
    return told;
}

TEST(Accept, keeps_rows_up_to_the_first_wrong_guess) {
    for (const std::int64_t rows : {1, 2, 3, 8, op::kAcceptRowsMax - 1, op::kAcceptRowsMax}) {
        check_accept("all right", all_right(rows));
        for (std::int64_t wrong = 0; wrong < rows; ++wrong) {
            Told told = all_right(rows);
            told.next[static_cast<std::size_t>(wrong)] = 7;
            check_accept(std::to_string(wrong) + " wrong of " + std::to_string(rows), told);
            // A row that does not tell agrees with nothing.
            told.next[static_cast<std::size_t>(wrong)] = -1;
            check_accept(std::to_string(wrong) + " untold of " + std::to_string(rows), told);
        }
    }
}

TEST(Accept, keeps_no_row_after_a_token_that_ends_the_text) {
    for (const std::int64_t rows : {2, 5, op::kAcceptRowsMax}) {
        for (std::int64_t at = 0; at < rows; ++at) {
            Told told = all_right(rows);
            const std::int32_t end = told.next[static_cast<std::size_t>(at)];
            told.ends = {end};
            check_accept("one end token", told);
            told.ends.assign(op::kEndTokensMax, 3);
            told.ends.back() = end;
            check_accept("the last of as many as there can be", told);
        }
    }
}

TEST(Accept, of_random_windows_is_the_count_of_plain_decoding) {
    Random random("accept");
    for (int i = 0; i < 200; ++i) {
        Told told;
        const auto rows = static_cast<std::int64_t>(random.integer(1, op::kAcceptRowsMax));
        for (std::int64_t t = 0; t < rows; ++t) {
            told.window.push_back(static_cast<std::int32_t>(random.integer(0, 2)));
            told.next.push_back(static_cast<std::int32_t>(random.integer(-1, 2)));
        }
        if (i % 3 == 0) told.ends = {2};
        check_accept("random " + std::to_string(i), told);
    }
}

}  // namespace
}  // namespace strata::test
