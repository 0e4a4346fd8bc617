// Sequence parallelism: whose rows are whose, what is gathered and what is summed, and in which order exchanges and
// products go.
#include "parallel/sequence_parallel.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/threads/run_ranks.h"
#include "parallel/plain_rows.h"
#include "support/noted_ranks.h"

namespace lockstep::tests {
namespace {

TEST(SequenceParallel, GathersAndSumsRowsByTheirPlaceInTheBatch) {
  for (const int ranks : {2, 3, 5})
    for (const auto& [pieces, N] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 12 * ranks}, {4, 12 * ranks}, {7, 12 * ranks}, {1, 31}, {4, 31}, {7, 31}, {4, 1}, {4, ranks + 1}})
      run_ranks(ranks, [&, pieces = pieces, N = N](std::unique_ptr<Communicator> group) {
        const std::int64_t width = 3;
        const TensorSplit split{.rank = group->rank(), .size = ranks, .sequence = true, .pieces = pieces};
        const SequenceParallel sequence(*group, {.split = split});
        const std::int64_t size = split.own_rows(N) * width;
        ASSERT_EQ(split.own_rows(N), N / ranks + (group->rank() < N % ranks ? 1 : 0));
        ASSERT_EQ(split.pieces_of(N), std::min(pieces, std::max<std::int64_t>(N / ranks, 1)));
        const auto row_of = [&](std::int64_t own) {
          for (std::int64_t c = 0; c < split.pieces_of(N); ++c) {
            const TensorSplit::RowPiece piece = split.piece(N, c);
            if (own < piece.own_first + piece.own_count) return piece.mine + own - piece.own_first;
          }
          ADD_FAILURE() << own;
          return std::int64_t{-1};
        };

        std::vector<double> own(static_cast<std::size_t>(size)), whole(static_cast<std::size_t>(N * width));
        for (std::int64_t i = 0; i < size; ++i) own[i] = static_cast<double>(row_of(i / width));
        std::int64_t covered = 0;
        sequence.gather(rows(whole, width), rows(own, width), [&](std::int64_t first, std::int64_t count) {
          ASSERT_EQ(first, covered);
          covered += count;
          for (std::int64_t i = first * width; i < (first + count) * width; ++i)
            ASSERT_EQ(whole[i], static_cast<double>(i / width));
        });
        EXPECT_EQ(covered, N);

        // Row n of rank r's is 100 r + n.
        sequence.reduce_scatter(rows(own, width), rows(whole, width), [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t i = first * width; i < (first + count) * width; ++i)
            whole[i] = 100.0 * group->rank() + static_cast<double>(i / width);
        });
        const double of_ranks = 100.0 * ranks * (ranks - 1) / 2;
        for (std::int64_t i = 0; i < size; ++i)
          ASSERT_EQ(own[i], of_ranks + static_cast<double>(ranks * row_of(i / width)));
      });
}

// The same rows, and other work between start and end.
TEST(SequenceParallel, GathersInTwoCalls) {
  for (const bool overlap : {false, true})
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      const TensorSplit split{.rank = group->rank(), .size = 3, .sequence = true, .pieces = 4};
      const SequenceParallel sequence(*group, {.split = split, .overlap = overlap});
      std::vector<double> own(static_cast<std::size_t>(split.own_rows(31))), whole(31, -1);
      for (std::int64_t p = 0, i = 0; p < split.pieces_of(31); ++p)
        for (std::int64_t n = 0; n < split.piece(31, p).own_count; ++n, ++i)
          own[i] = static_cast<double>(split.piece(31, p).mine + n);
      SequenceParallel::Exchange exchange = sequence.start_gather(rows(whole, 1), rows(own, 1));
      EXPECT_EQ(exchange.size(), 4u);
      SequenceParallel::finish(exchange);
      EXPECT_TRUE(exchange.empty());
      for (std::int64_t i = 0; i < 31; ++i) ASSERT_EQ(whole[i], static_cast<double>(i));
    });
}

// An exchange is under way while another piece is multiplied; without overlap none is.
TEST(SequenceParallel, PiecesAreExchangedBesideProductsOfOthers) {
  using Notes = std::vector<std::string>;
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<Communicator> group) {
    const auto notes_of = [&](bool overlap, bool gathers) {
      Notes notes;
      NotedRanks noted(*group, notes);
      const SequenceParallel sequence(
          noted, {.split = {.rank = group->rank(), .size = 2, .sequence = true, .pieces = 3}, .overlap = overlap});
      std::vector<double> own(3), whole(6);
      const auto product = [&](std::int64_t first, std::int64_t) {
        notes.push_back("product " + std::to_string(first / 2));
      };
      if (gathers)
        sequence.gather(rows(whole, 1), rows(own, 1), product);
      else
        sequence.reduce_scatter(rows(own, 1), rows(whole, 1), product);
      return notes;
    };
    const Notes gathered = notes_of(true, true), summed = notes_of(true, false);
    const Notes gathered_in_turn = notes_of(false, true), summed_in_turn = notes_of(false, false);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(gathered, (Notes{"start 0", "start 1", "wait 0", "product 0", "start 2", "wait 1", "product 1", "wait 2",
                               "product 2"}));
    EXPECT_EQ(summed, (Notes{"product 0", "start 0", "product 1", "start 1", "product 2", "start 2", "wait 0", "wait 1",
                             "wait 2"}));
    EXPECT_EQ(gathered_in_turn, (Notes{"start 0", "wait 0", "product 0", "start 1", "wait 1", "product 1", "start 2",
                                       "wait 2", "product 2"}));
    EXPECT_EQ(summed_in_turn, (Notes{"product 0", "start 0", "wait 0", "product 1", "start 1", "wait 1", "product 2",
                                     "start 2", "wait 2", "wait 0", "wait 1", "wait 2"}));
  });
}

}  // namespace
}  // namespace lockstep::tests
