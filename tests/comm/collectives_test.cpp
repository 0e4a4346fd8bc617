// Every operation in every type over 1 to 8 ranks does what its name says, against a serial computation.
#include "comm/parts.h"
#include "comm/ranks.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 7, 1000, 4099};

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }

  // Body for all ranks, types and sizes; all in one world, so that operations follow each other.
  void everywhere(const std::function<void(Communicator&, DType, std::int64_t)>& body) {
    each_rank(ranks(), [&](Communicator& comm) {
      for (const DType dtype : kTypes)
        for (const std::int64_t n : kSizes) body(comm, dtype, n);
    });
  }

  double reduced(Reduction reduction, DType dtype, std::int64_t i) const {
    double sum = 0, largest = whole(0, i);
    for (int rank = 0; rank < ranks(); ++rank) {
      sum += whole(rank, i);
      largest = std::max(largest, whole(rank, i));
    }
    if (reduction == Reduction::sum) return sum;
    if (reduction == Reduction::max) return largest;
    return round_to(dtype, round_to(accumulator_of(dtype), sum / ranks()));
  }

  std::vector<Reducing> ways(DType dtype) const {
    std::vector<Reducing> all;
    for (const Algorithm algorithm : kAlgorithms)
      for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max})
        if (reduction != Reduction::mean || is_float(dtype)) all.push_back({reduction, algorithm});
    return all;
  }

  // Parts of about n in all: n for each rank, or uneven, some of them none.
  std::vector<std::int64_t> uneven(std::int64_t n) const {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < ranks(); ++rank) counts.push_back(rank % 3 == 1 ? 0 : n / (rank + 1));
    return counts;
  }
  static std::int64_t total(const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count;
    return sum;
  }
};

// Many elements are compared: one failed expectation tells of the first wrong one.
template <class Want>
void expect_elements(const Row& got, std::int64_t count, Want&& want, const std::string& what) {
  for (std::int64_t i = 0; i < count; ++i)
    if (got[i] != want(i)) {
      ADD_FAILURE() << what << ": element " << i << " of " << count << " is " << got[i] << ", expected " << want(i);
      return;
    }
}

std::string called(const char* op, const Communicator& comm, DType dtype, Reducing how = {}) {
  return fmt::format("{} {} {} {} on rank {} of {}", op, name_of(dtype), name_of(how.reduction), name_of(how.algorithm),
                     comm.rank(), comm.size());
}

TEST_P(Collectives, AllReduceGivesEveryRankTheSum) {
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    for (const Reducing how : ways(dtype)) {
      Row x = row_of(dtype, n, comm.rank()), in = x, out(dtype, n);
      const auto want = [&](std::int64_t i) { return reduced(how.reduction, dtype, i); };
      comm.all_reduce(x, how)->wait();
      expect_elements(x, n, want, called("all_reduce", comm, dtype, how));
      // Apart, on some ranks only: where a rank's result goes is its own affair.
      const bool apart = comm.rank() % 2 == 0;
      Row& to = apart ? out : in;
      comm.start(
              {.op = CommOp::all_reduce, .out = to, .in = in, .reduction = how.reduction, .algorithm = how.algorithm})
          ->wait();
      expect_elements(to, n, want, called("all_reduce apart", comm, dtype, how));
      if (apart) {
        EXPECT_EQ(in.bytes(), row_of(dtype, n, comm.rank()).bytes());
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPartOfTheSum) {
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    const std::vector<std::int64_t> even(static_cast<std::size_t>(ranks()), n);
    for (const Reducing how : ways(dtype))
      for (const bool equal : {true, false}) {
        const std::vector<std::int64_t> counts = equal ? even : uneven(n);
        const Parts parts(total(counts), ranks(), counts);
        const std::int64_t begin = parts.begin(comm.rank()), count = parts.size(comm.rank());
        const auto want = [&](std::int64_t i) { return reduced(how.reduction, dtype, begin + i); };
        Row in = row_of(dtype, parts.elements(), comm.rank()), out(dtype, count);
        comm.reduce_scatter(out, in, how, equal ? std::vector<std::int64_t>{} : counts)->wait();
        expect_elements(out, count, want, called("reduce_scatter", comm, dtype, how));
        EXPECT_EQ(in.bytes(), row_of(dtype, parts.elements(), comm.rank()).bytes());
        comm.reduce_scatter(in.part(begin, count), in, how, counts)->wait();
        Row taken(dtype, count, [&](std::int64_t i) { return in[begin + i]; });
        expect_elements(taken, count, want, called("reduce_scatter in place", comm, dtype, how));
      }
  });
}

TEST_P(Collectives, GathersBringThePartsTogether) {
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    const std::vector<std::int64_t> even(static_cast<std::size_t>(ranks()), n);
    for (const bool equal : {true, false}) {
      const std::vector<std::int64_t> counts = equal ? even : uneven(n);
      const Parts parts(total(counts), ranks(), counts);
      const std::int64_t begin = parts.begin(comm.rank()), count = parts.size(comm.rank());
      Row in = row_of(dtype, count, comm.rank()), out(dtype, parts.elements()), place(dtype, parts.elements());
      Row want(dtype, parts.elements());
      for (int rank = 0; rank < ranks(); ++rank)
        for (std::int64_t i = 0; i < parts.size(rank); ++i) want.set(parts.begin(rank) + i, whole(rank, i));
      const std::vector<std::int64_t> given = equal ? std::vector<std::int64_t>{} : counts;
      for (const Algorithm algorithm : kAlgorithms) {
        comm.start({.op = CommOp::all_gather, .out = out, .in = in, .algorithm = algorithm, .counts = given})->wait();
        EXPECT_EQ(out.bytes(), want.bytes()) << called("all_gather", comm, dtype);
      }
      for (std::int64_t i = 0; i < count; ++i) place.set(begin + i, whole(comm.rank(), i));
      comm.all_gather(place, place.part(begin, count), given)->wait();
      EXPECT_EQ(place.bytes(), want.bytes()) << called("all_gather in place", comm, dtype);

      const int root = ranks() - 1;
      Row at_root(dtype, parts.elements());
      comm.gather(comm.rank() == root ? static_cast<Tensor>(at_root) : Tensor{}, in, root, given)->wait();
      if (comm.rank() == root) {
        EXPECT_EQ(at_root.bytes(), want.bytes()) << called("gather", comm, dtype);
      }
      // And apart again.
      Row back(dtype, count);
      comm.scatter(back, comm.rank() == root ? static_cast<ConstTensor>(at_root) : ConstTensor{}, root, given)->wait();
      EXPECT_EQ(back.bytes(), in.bytes()) << called("scatter", comm, dtype);
    }
  });
}

TEST_P(Collectives, BroadcastAndReduceHaveAnyRoot) {
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    for (int root = 0; root < ranks(); root += 2) {
      Row x = row_of(dtype, n, comm.rank());
      comm.broadcast(x, root)->wait();
      EXPECT_EQ(x.bytes(), row_of(dtype, n, root).bytes()) << called("broadcast", comm, dtype);
      for (const Reducing how : ways(dtype)) {
        Row in = row_of(dtype, n, comm.rank()), out(dtype, n);
        comm.reduce(comm.rank() == root ? static_cast<Tensor>(out) : Tensor{}, in, root, how)->wait();
        if (comm.rank() == root)
          expect_elements(
              out, n, [&](std::int64_t i) { return reduced(how.reduction, dtype, i); },
              called("reduce", comm, dtype, how));
        EXPECT_EQ(in.bytes(), row_of(dtype, n, comm.rank()).bytes());
      }
    }
  });
}

TEST_P(Collectives, AllToAllTransposes) {
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    Row in = row_of(dtype, n * ranks(), comm.rank()), out(dtype, n * ranks());
    comm.all_to_all(out, in)->wait();
    expect_elements(
        out, n * ranks(), [&](std::int64_t i) { return whole(static_cast<int>(i / n), comm.rank() * n + i % n); },
        called("all_to_all", comm, dtype));
    // Uneven: rank a gives rank b (a + 2b) % 4 times n / 4, which may be nothing.
    const auto given = [&](int from, int to) { return (from + 2 * to) % 4 * (n / 4); };
    std::vector<std::int64_t> counts;
    std::int64_t room = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      counts.push_back(given(comm.rank(), rank));
      room += given(rank, comm.rank());
    }
    Row from = row_of(dtype, total(counts), comm.rank()), to(dtype, room), want(dtype, room);
    comm.all_to_all(to, from, counts)->wait();
    for (int rank = 0, at = 0; rank < ranks(); ++rank) {
      std::int64_t begin = 0;
      for (int before = 0; before < comm.rank(); ++before) begin += given(rank, before);
      for (std::int64_t i = 0; i < given(rank, comm.rank()); ++i) want.set(at++, whole(rank, begin + i));
    }
    EXPECT_EQ(to.bytes(), want.bytes()) << called("uneven all_to_all", comm, dtype);
  });
}

TEST_P(Collectives, MessagesGoRoundBothWays) {
  if (ranks() == 1) return;  // nobody to send to
  everywhere([&](Communicator& comm, DType dtype, std::int64_t n) {
    const int next = (comm.rank() + 1) % ranks(), before = (comm.rank() + ranks() - 1) % ranks();
    Row x = row_of(dtype, n, comm.rank()), from_before(dtype, n), from_next(dtype, n);
    const auto a = comm.send(x, next), b = comm.send(x, before);  // all send before any receives
    const auto c = comm.recv(from_before, before), d = comm.recv(from_next, next);
    // With two ranks both neighbours are the same, and messages are matched by order.
    for (const auto& pending : {a.get(), b.get(), c.get(), d.get()}) pending->wait();
    EXPECT_EQ(from_before.bytes(), row_of(dtype, n, before).bytes());
    EXPECT_EQ(from_next.bytes(), row_of(dtype, n, next).bytes());
    comm.barrier()->wait();
  });
}

TEST_P(Collectives, OfManyPiecesAreStillWhole) {
  each_rank(ranks(), [&](Communicator& comm) {
    const std::int64_t n = 1000003;  // many pieces, shared by those who wait
    Row x = row_of(DType::f32, n, comm.rank());
    comm.all_reduce(x)->wait();
    expect_elements(
        x, n, [&](std::int64_t i) { return reduced(Reduction::sum, DType::f32, i); },
        called("large", comm, DType::f32));
    Row all(DType::bf16, 200003 * ranks());
    Row mine = row_of(DType::bf16, 200003, comm.rank());
    comm.all_gather(all, mine)->wait();
    expect_elements(
        all, all.elements(), [&](std::int64_t i) { return whole(static_cast<int>(i / 200003), i % 200003); },
        called("large all_gather", comm, DType::bf16));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Range(1, 9));

}  // namespace
}  // namespace lockstep::tests
