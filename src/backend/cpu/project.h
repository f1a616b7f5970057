// Products of stored weight matrices with rows of F32.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backend/cpu/product.h"
#include "backend/cpu/queue.h"
#include "op/weight.h"

namespace strata::cpu {

inline constexpr int kProjectionsMax = 8;

// `columns` columns from `first_column` on of a weight, times each input row.
struct Projection {
    const op::Weight& weight;
    MatrixView<float> out;  // [x.rows, weight.rows]
    std::int64_t first_column = 0;
    bool exact = false;  // x is not rounded, whatever the weight's type
};

// out[t, r] = weight[r] . x[t] for each of at most kProjectionsMax projections, as op/weight.h
// says. x.cols columns of each weight are used; each weight row is read once, whatever the number
// of input rows.
void project(Queue& queue, MatrixView<const float> x, std::initializer_list<Projection> all);

// Rows of a block where `rows` input rows of products with these weights should be divided by_rows,
// since each thread has all of the weights in its cache; 0: not to be divided.
std::int64_t divided_rows(const Queue& queue, std::int64_t rows,
                          std::initializer_list<const op::Weight*> weights);

// Rows first .. first+count-1 of the weight as F32: in place where they are F32 already, else
// decoded into `buffer` of count * weight.cols values.
Rows decode_rows(const op::Weight& weight, std::int64_t first, std::int64_t count, float* buffer);

// Row `row` of a table, decoded to table.cols values.
void decode_row(const op::Weight& table, std::int64_t row, float* to);

// Whether the weight is [rows, cols] and its rows are as long as its type says.
bool has_shape(const op::Weight& weight, std::int64_t rows, std::int64_t cols);

}  // namespace strata::cpu
