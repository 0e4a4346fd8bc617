// metrics.jsonl as comma-separated values.
#include "telemetry/metrics_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "support/program.h"

namespace lockstep {
namespace {

class MetricsCsv : public ::testing::Test {
 protected:
  std::string csv_of(const std::string& lines) {
    std::ofstream(folder_ / "metrics.jsonl") << lines;
    std::string csv;
    counts_ = write_metrics_csv(folder_ / "metrics.jsonl", [&](std::string_view row) { csv += row; });
    return csv;
  }
  tests::TemporaryFolder folder_;
  MetricsCsvCounts counts_;
};

const std::string kUsual =
    "step,loss,loss_z,grad_norm,lr,step_ms,tokens_per_s,mfu,model_flops_per_s,updated,eval_loss,eval_accuracy,time";

TEST_F(MetricsCsv, CopiesDigitsAndFlattensObjects) {
  EXPECT_EQ(csv_of(R"({"step":1,"loss":5.550000000000000001,"loss_z":null,"lr":1.50e-05,"updated":true,)"
                   R"("uses":{"compute":{"mean_ms":1.25,"rank":3}},"bytes":{"weights":7}})"
                   "\n"
                   R"({"step":1,"eval_loss":-0.10,"eval_accuracy":0.250,"time":1.7e9})"
                   "\n"
                   R"({"step":2,"loss":4,"uses":{"data":{"mean_ms":2}},"bytes":{"weights":18446744073709551615}})"
                   "\n"),
            kUsual +
                ",uses.compute.mean_ms,uses.compute.rank,bytes.weights,uses.data.mean_ms\r\n"
                "1,5.550000000000000001,,,1.50e-05,,,,,true,,,,1.25,3,7,\r\n"
                "1,,,,,,,,,,-0.10,0.250,1.7e9,,,,\r\n"
                "2,4,,,,,,,,,,,,,,18446744073709551615,2\r\n");
  EXPECT_EQ(counts_.rows, 3);
  EXPECT_EQ(counts_.left_out, 0);
}

TEST_F(MetricsCsv, LeavesOutAHalfLineAndWhatIsNoRecord) {
  const std::string csv =
      csv_of("{\"step\":1,\"loss\":2}\nnonsense\n[1]\n{\"loss\":3}\n{\"step\":1.5}\n5\n{\"step\":2,");
  EXPECT_EQ(csv, kUsual + "\r\n1,2,,,,,,,,,,,\r\n");
  EXPECT_EQ(counts_.rows, 1);
  EXPECT_EQ(counts_.left_out, 5);
  EXPECT_EQ(csv_of("{\"step\":1,\"loss\":2}"), kUsual + "\r\n");  // whole, but its end has not been written
  EXPECT_EQ(csv_of(""), kUsual + "\r\n");
}

TEST_F(MetricsCsv, QuotesTextAsTheStandardSays) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a,b\":\"say \\\"x\\\"\",\"list\":[1,{\"x\":2}]}\n"),
            kUsual + ",\"a,b\",list.0,list.1.x\r\n1,,,,,,,,,,,,,\"say \"\"x\"\"\",1,2\r\n");
}

TEST_F(MetricsCsv, OfNoFileIsRefused) {
  EXPECT_THROW(write_metrics_csv(folder_ / "absent", [](std::string_view) {}), UserError);
}

}  // namespace
}  // namespace lockstep
