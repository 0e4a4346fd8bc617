#include "comm/comm_log.h"

namespace lockstep {

std::string describe(const CommRecord& r) {
  return fmt::format("{} #{} of '{}', {} {}, {}: {}", name_of(r.op), r.sequence, r.group, r.count, name_of(r.dtype),
                     name_of(r.algorithm), r.done ? "done" : "under way");
}

std::uint64_t CommLog::begin(CommRecord record) {
  const std::lock_guard lock(mutex_);
  record.started = now();
  CommTotal& total = totals_[{record.group, record.op, record.dtype}];
  ++total.calls;
  total.sent += record.traffic.sent;
  total.received += record.traffic.received;
  total.messages += record.traffic.messages;
  total.bytes_sent += record.traffic.sent * size_of(record.dtype);
  records_.push_back(std::move(record));
  if (records_.size() > kept_) {
    records_.pop_front();
    ++dropped_;
  }
  return dropped_ + records_.size() - 1;
}

void CommLog::end(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number < dropped_) return;  // dropped: `kept` operations were begun after it
  CommRecord& record = records_[number - dropped_];
  if (record.done) return;
  record.done = true;
  record.ended = now();
  totals_[{record.group, record.op, record.dtype}].seconds += record.ended - record.started;
}

void CommLog::waited(const Key& key, double seconds) {
  const std::lock_guard lock(mutex_);
  totals_[key].waited += seconds;
}

CommLog::Totals CommLog::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::int64_t CommLog::sent(CommOp op) const {
  const std::lock_guard lock(mutex_);
  std::int64_t elements = 0;
  for (const auto& [key, total] : totals_)
    if (std::get<CommOp>(key) == op) elements += total.sent;
  return elements;
}

std::int64_t CommLog::sent() const {
  const std::lock_guard lock(mutex_);
  std::int64_t elements = 0;
  for (const auto& [key, total] : totals_) elements += total.sent;
  return elements;
}

double CommLog::waited() const {
  const std::lock_guard lock(mutex_);
  double seconds = 0;
  for (const auto& [key, total] : totals_) seconds += total.waited;
  return seconds;
}

std::uint64_t CommLog::begun() const {
  const std::lock_guard lock(mutex_);
  return dropped_ + records_.size();
}

std::vector<CommRecord> CommLog::last() const {
  const std::lock_guard lock(mutex_);
  return {records_.begin(), records_.end()};
}

std::string CommLog::last_operations(std::size_t most) const {
  const std::vector<CommRecord> all = last();
  std::string text;
  for (std::size_t i = all.size() > most ? all.size() - most : 0; i < all.size(); ++i)
    text += (text.empty() ? "" : "; ") + describe(all[i]);
  return text.empty() ? "no message yet" : text;
}

}  // namespace lockstep
