// The exchange of heads: tokens with all heads become all tokens with some heads, as a plain permutation says, and
// back.
#include "parallel/ulysses.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kB = 2, kt = 3, kWidth = 4;

// Of the token at this place of the whole, one head's element.
double head_element(std::int64_t tensor, std::int64_t b, std::int64_t token, std::int64_t head, std::int64_t d) {
  return static_cast<double>((((tensor * kB + b) * 64 + token) * 32 + head) * kWidth + d);
}

TEST(Ulysses, ExchangesTokensForHeadsAndBack) {
  struct Case {
    int ranks;
    std::int64_t queries, keys;
  };
  for (const auto& [ranks, queries, keys] :
       {Case{2, 4, 2}, {3, 6, 3}, {3, 3, 1}, {5, 10, 5}, {5, 5, 1}, {4, 8, 2}, {6, 6, 3}})
    each_rank(ranks, [ranks = ranks, queries = queries, keys = keys](Communicator& group) {
      CpuDevice cpu;
      const int rank = group.rank();
      struct One {
        std::int64_t all, own, first;  // heads: all, those of this rank, the first of these
        std::int64_t copies;           // ranks that have the same one
      };
      const auto heads = [&](std::int64_t all) {
        const std::int64_t own = std::max<std::int64_t>(all / ranks, 1),
                           copies = std::max<std::int64_t>(ranks / all, 1);
        return One{all, own, rank * all / ranks, copies};
      };
      const One kinds[] = {heads(queries), heads(keys)};
      std::vector<Row> tokens, by_heads;
      std::int64_t most = 0;
      for (const One& k : kinds) {
        const auto tensor = static_cast<std::int64_t>(tokens.size());
        tokens.emplace_back(DType::f64, kB * kt * k.all * kWidth, [&](std::int64_t i) {
          return head_element(tensor, i / (kt * k.all * kWidth), rank * kt + i / (k.all * kWidth) % kt,
                              i / kWidth % k.all, i % kWidth);
        });
        by_heads.emplace_back(DType::f64, kB * ranks * kt * k.own * kWidth);
        most += by_heads.back().elements();
      }
      const UlyssesExchange exchange(group, most, DType::f64, cpu.memory());
      std::vector<UlyssesExchange::Exchanged> both;
      for (std::size_t i = 0; i < 2; ++i)
        both.push_back({static_cast<Tensor>(tokens[i]).reshape({kB, kt, kinds[i].all, kWidth}),
                        static_cast<Tensor>(by_heads[i]).reshape({kB, ranks * kt, kinds[i].own, kWidth})});

      exchange.to_heads(both, cpu.stream());
      for (std::int64_t t = 0; t < 2; ++t) {
        const One& k = kinds[t];
        for (std::int64_t i = 0; i < by_heads[t].elements(); ++i)
          ASSERT_EQ(by_heads[t][i],
                    head_element(t, i / (ranks * kt * k.own * kWidth), i / (k.own * kWidth) % (ranks * kt),
                                 k.first + i / kWidth % k.own, i % kWidth))
              << "tensor " << t << ", element " << i << " of rank " << rank;
      }

      // And back: each its own again, summed over the ranks that had the same head.
      std::vector<Row> before = tokens;
      for (Row& row : tokens)
        for (std::int64_t i = 0; i < row.elements(); ++i) row.set(i, -1);
      exchange.to_tokens(both, cpu.stream());
      for (std::size_t t = 0; t < 2; ++t)
        for (std::int64_t i = 0; i < tokens[t].elements(); ++i)
          ASSERT_EQ(tokens[t][i], static_cast<double>(kinds[t].copies) * before[t][i])
              << "tensor " << t << ", element " << i << " of rank " << rank;
    });
}

}  // namespace
}  // namespace lockstep::tests
