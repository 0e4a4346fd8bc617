#include "plan/coding_rates.h"

#include <cmath>
#include <future>

#include "base/median.h"
#include "comm/threads/run_ranks.h"
#include "kernels/block_codes.h"
#include "kernels/top_k.h"
#include "kernels/tree_sum.h"
#include "parallel/block_coded_sum.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

constexpr std::int64_t kRanks = 2;

std::function<void()> block_calls(TimedTensors& t, BlockForm form, std::int64_t elements) {
  const std::int64_t part = elements / kRanks;
  const Tensor x = t.tensor({elements}, DType::f32), residual = t.tensor({elements}, DType::f32),
               sum = t.tensor({part}, DType::f32), second = t.tensor({part}, DType::f32);
  const Tensor code = t.room({coded_words(form, elements)}, DType::i32),
               sent = t.room({coded_words(form, part)}, DType::i32),
               other = t.room({coded_words(form, part)}, DType::i32);
  for (const Tensor& coded : {sent, other})  // whatever is decoded is a code
    encode_blocks({.code = coded, .residual = {}, .x = sum, .form = form}, t.stream());
  return [=, &t] {
    encode_blocks({.code = code, .residual = residual, .x = x, .form = form}, t.stream());
    const ConstTensor parts[] = {sent, other};
    decode_blocks({.y = sum, .codes = parts, .joins = balanced_joins(kRanks), .form = form}, t.stream());
    encode_blocks({.code = sent, .residual = second, .x = sum, .form = form}, t.stream());
    const ConstTensor all[] = {code};
    decode_blocks({.y = x, .codes = all, .joins = balanced_joins(1), .form = form}, t.stream());
  };
}

std::function<void()> top_k_calls(TimedTensors& t, double share, std::int64_t elements) {
  const auto kept = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(elements)));
  const Tensor x = t.tensor({elements}, DType::f32), residual = t.tensor({elements}, DType::f32),
               values = t.tensor({kept}, DType::f32), indices = t.indices({kept}, elements);
  return [=, &t] {
    select_top({.values = values, .indices = indices, .residual = residual, .x = x, .first = 0}, t.stream());
    for (int rank = 0; rank < kRanks; ++rank)
      add_at({.y = x, .indices = indices, .values = values, .first = 0}, t.stream());
  };
}

}  // namespace

std::function<void()> coding_calls(TimedTensors& tensors, const Compression& form, std::int64_t elements) {
  return form.kind == Compression::Kind::topk ? top_k_calls(tensors, form.share, elements)
                                              : block_calls(tensors, block_form(form), elements);
}

meta::Work coding_work(const RunSpec& run, const Compression& form, std::int64_t elements) {
  TimedTensors tensors(run, TimedTensors::Kind::counting);
  const auto call = coding_calls(tensors, form, elements);
  meta::Work& work = meta::Stream::of(tensors.stream()).work();
  work = {};
  call();
  return work;
}

double measure_coding(const RunSpec& run, const Compression& form, int threads, int copies, std::int64_t elements) {
  std::vector<double> seconds(static_cast<std::size_t>(copies));
  RunSpec each = run;
  each.run.threads = threads;
  const auto body = [&](std::unique_ptr<Communicator> comm) {
    if (run.run.pin) take_share_of_cores(comm->rank(), comm->size());
    TimedTensors tensors(each, TimedTensors::Kind::real);
    const auto call = coding_calls(tensors, form, elements);
    comm->barrier()->wait();
    seconds[static_cast<std::size_t>(comm->rank())] = seconds_of_one(call, tensors.stream());
  };
  // In a thread of its own, as the one that calls is rank 0 and would keep to its share of the cores.
  std::async(std::launch::async, [&] { run_ranks(copies, body); }).get();
  const meta::Work work = coding_work(run, form, elements);
  return median(seconds) / static_cast<double>(work.bytes_read + work.bytes_written);
}

}  // namespace lockstep
