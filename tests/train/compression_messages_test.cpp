// What compressed gradients send and hold: the recorder of real ranks, the recorder on meta, and the derivation are
// one.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "parallel/gradients.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Replica::Options compressed_step(const LayoutSpec& layout, const std::string& form, bool feedback = true) {
  Replica::Options o{.spec = tiny_specs()[0].spec, .B = 24, .T = 9, .layout = layout, .seed = 5};
  o.sync.compress = Compression::parse(form).value();
  o.sync.feedback = feedback;
  return o;
}

const char* const kSentForms[] = {"topk:0.01", "topk:0.3", "bf16", "int8", "onebit"};

TEST(CompressedMessages, MetaCountsWhatRanksSend) {
  for (const char* form : kSentForms)
    for (const std::int64_t zero : {0, 1, 2, 3})
      for (const int ranks : {2, 3, 5}) {
        const Replica::Options o = compressed_step(
            {.dp = ranks, .micro = 2, .zero = zero, .bucket = zero == 0 ? 0 : 25, .uneven = Switch::on}, form);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent)
              << form << ", " << to_text(o.layout) << ", rank " << r;
      }
}

// Of every parameter, k = ⌈share · elements⌉ values and as many indices, to each of the others.
TEST(CompressedMessages, OfTopKAreItsEntriesToEveryOtherRank) {
  for (const int ranks : {2, 3, 8})
    for (const double share : {0.01, 0.3}) {
      const Replica::Options o = compressed_step({.dp = ranks}, fmt::format("topk:{}", share));
      std::int64_t k = 0;
      const Model model(o.spec, 1, o.T, DType::f32);
      for (int u = 0; u < model.units(); ++u)
        for (const StoredParameter& parameter : model.unit(u).layout().parameters())
          k += static_cast<std::int64_t>(std::ceil(share * static_cast<double>(parameter.elements())));
      for (const int rank : {0, ranks - 1}) {
        const Recorded one = on_meta(o, rank);
        EXPECT_EQ(one.elements(CommOp::all_gather, DType::f32), (ranks - 1) * k) << ranks << " ranks, values";
        EXPECT_EQ(one.elements(CommOp::all_gather, DType::i32), (ranks - 1) * k) << ranks << " ranks, indices";
        EXPECT_EQ(one.elements(CommOp::all_reduce, DType::f32), 0) << "nothing is sent beside";
      }
    }
}

// Of a code of w words to a block of 256 elements, each leg sends (N-1)/N of all words.
TEST(CompressedMessages, OfBlockCodesAreTwoLegsOfTheirWords) {
  for (const auto& [form, words] : {std::pair{"bf16", 128}, {"int8", 65}, {"onebit", 10}})
    for (const int ranks : {2, 3, 5, 8}) {
      const Replica::Options o = compressed_step({.dp = ranks}, form);
      std::int64_t first = 0, second = 0, all = 0;
      for (int r = 0; r < ranks; ++r) {
        const Recorded one = on_meta(o, r);
        all = one.stored / 256 * words;
        first += one.elements(CommOp::all_to_all, DType::i32);
        second += one.elements(CommOp::all_gather, DType::i32);
        EXPECT_EQ(one.elements(CommOp::all_reduce, DType::f32), 0) << "nothing is sent beside";
      }
      EXPECT_EQ(first, all * (ranks - 1)) << form << ", " << ranks << " ranks together";
      EXPECT_EQ(second, all * (ranks - 1)) << form << ", " << ranks << " ranks together";
    }
}

// Shards of the sums are made where they are used: the second leg falls away.
TEST(CompressedMessages, OfShardsAreOneLeg) {
  for (const auto& [form, words] : {std::pair{"bf16", 128}, {"int8", 65}, {"onebit", 10}})
    for (const std::int64_t zero : {1, 2, 3})
      for (const int ranks : {2, 3, 5}) {
        const Replica::Options o = compressed_step({.dp = ranks, .micro = 2, .zero = zero, .uneven = Switch::on}, form);
        const Recorded one = on_meta(o, ranks - 1);
        std::int64_t blocks = 0;  // of all units, each padded to equal shards
        for (const std::int64_t owned : one.owned) blocks += Shard{.index = 0, .count = ranks}.padded(owned) / 256;
        EXPECT_EQ(one.elements(CommOp::all_to_all, DType::i32),
                  (zero == 1 ? 1 : 2) * blocks / ranks * (ranks - 1) * words)
            << form << ", " << to_text(o.layout);
        EXPECT_EQ(one.elements(CommOp::all_gather, DType::i32), 0);
        EXPECT_EQ(one.elements(CommOp::reduce_scatter, DType::f32), 0);
      }
}

// As often as without, 65 words for 256 weights; and gathered weights are still released.
TEST(CompressedMessages, OfWeightsAreTheirBlocks) {
  for (const int ranks : {2, 3, 5})
    for (const Reshard reshard : {Reshard::forward, Reshard::never}) {
      Replica::Options o{.spec = tiny_specs()[0].spec,
                         .B = 24,
                         .T = 9,
                         .layout = {.dp = ranks, .micro = 2, .zero = 3, .reshard = reshard, .uneven = Switch::on},
                         .seed = 5};
      o.layout.grad_sync = GradSync::micro;
      const Recorded plain = on_meta(o, ranks - 1);
      o.sync.compress_weights = Compression::parse("int8").value();
      const std::vector<Recorded> real = on_threads(o);
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent) << to_text(o.layout) << ", rank " << r;
      const std::int64_t weights = plain.elements(CommOp::all_gather, DType::f32);
      EXPECT_GT(weights, 0);
      EXPECT_EQ(real.back().elements(CommOp::all_gather, DType::i32), weights / 256 * 65) << to_text(o.layout);
      EXPECT_EQ(real.back().elements(CommOp::all_gather, DType::f32), 0) << to_text(o.layout);
    }
}

TEST(CompressedMemory, IsWhatMetaSays) {
  for (const char* form : kSentForms)
    for (const bool feedback : {true, false})
      for (const std::int64_t zero : {0, 1, 3}) {
        Replica::Options o = compressed_step({.dp = 3, .micro = 2, .zero = zero}, form, feedback);
        if (zero == 3) o.sync.compress_weights = Compression::parse("int8").value();
        run_ranks(3, [&](std::unique_ptr<Communicator> group) {
          CpuDevice cpu;
          MetaDevice meta;
          meta::Communicator counted(group->rank(), 3);
          const Replica real(o, {*group, *group}, cpu.memory(), cpu.stream());
          const Replica planned(o, {counted, counted}, meta.memory(), meta.stream());
          for (const Tag tag :
               {Tag::parameter, Tag::gathered, Tag::gradient, Tag::optimizer, Tag::activation, Tag::communication})
            EXPECT_EQ(cpu.memory().ledger().current(tag), meta.memory().ledger().current(tag))
                << form << ", zero " << zero << ", " << name_of(tag);
        });
      }
}

// Of Ψ elements over N ranks: residuals of all of them and of this rank's piece of the sums; to save their sum, that
// piece and room for a bucket, which here is all; and the messages.
TEST(CompressedMemory, IsResidualsTheirSumAndMessages) {
  for (const auto& [form, words] : {std::pair{"bf16", 128}, {"int8", 65}, {"onebit", 10}})
    for (const bool feedback : {true, false})
      for (const int ranks : {2, 3, 5}) {
        const Replica::Options o = compressed_step({.dp = ranks, .uneven = Switch::on}, form, feedback);
        MetaDevice meta;
        meta::Communicator counted(0, ranks);
        const Replica planned(o, {counted, counted}, meta.memory(), meta.stream());
        std::int64_t psi = 0;
        for (int u = 0; u < planned.model().units(); ++u) psi += planned.model().unit(u).layout().owned();
        const std::int64_t blocks = ceil_div(psi / 256, ranks), piece = 256 * blocks;  // of rank 0
        const auto held = [&](Tag tag, const char* name) {
          const Ledger::Rows rows = meta.memory().ledger().rows();
          const auto row = rows.find({tag, name});
          return row == rows.end() ? 0 : row->second.current;
        };
        EXPECT_EQ(held(Tag::gradient, "residuals"), feedback ? 4 * (psi + piece) : 0) << form << ", " << ranks;
        EXPECT_EQ(held(Tag::gradient, "sum of residuals"), feedback ? 4 * (piece + psi) : 0) << form << ", " << ranks;
        EXPECT_EQ(held(Tag::communication, "compressed gradients"),
                  round_up(4 * words * psi / 256, kAlignment) + round_up(4 * words * ranks * blocks, kAlignment))
            << form << ", " << ranks;
      }
}

}  // namespace
}  // namespace lockstep::tests
