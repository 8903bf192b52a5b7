package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Measures of the picture.
const (
	width, height = 24 * vg.Centimeter, 9.5 * vg.Centimeter
	margin        = 5 * vg.Millimeter
	thickness     = 0.8 * vg.Centimeter
	// past is how much longer than the longest bar the axis is: a label stands there.
	past = 1.45
)

// Colours of the parts, told apart by people who do not tell red from green, too, and of what is only known as a whole.
var (
	colours = []color.Color{
		color.RGBA{0x00, 0x72, 0xb2, 0xff},
		color.RGBA{0xe6, 0x9f, 0x00, 0xff},
		color.RGBA{0x00, 0x00, 0x00, 0xff},
		color.RGBA{0xcc, 0x79, 0xa7, 0xff},
		color.RGBA{0x00, 0x9e, 0x73, 0xff},
		color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	}
	whole = color.RGBA{0xb8, 0xb8, 0xb8, 0xff}
	ink   = color.RGBA{0x33, 0x33, 0x33, 0xff}
)

// drawBars writes the bars as SVG.
func drawBars(bars []bar, out io.Writer) error {
	p := plot.New()
	p.Title.Text = "One pod, its node crashes: seconds until it runs elsewhere, median"
	p.Title.Padding = 3 * vg.Millimeter
	p.X.Label.Text = "seconds since the crash"
	// The texts of the legend stand to the right of their colours, so that they fit whatever the viewer's font is.
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, true, 12*vg.Centimeter, -2*vg.Millimeter
	p.Legend.Padding, p.Legend.ThumbnailWidth = 1*vg.Millimeter, 6*vg.Millimeter
	p.X.Min = 0
	names := make([]string, len(bars))
	longest := 0.0
	labels := plotter.XYLabels{}
	for i, b := range bars {
		at := float64(len(bars) - 1 - i) // the first at the top
		names[len(bars)-1-i] = b.name
		longest = max(longest, b.worst)
		if err := add(p, b, at); err != nil {
			return err
		}
		worst, err := plotter.NewLine(plotter.XYs{{X: b.median, Y: at}, {X: b.worst, Y: at}})
		if err != nil {
			return fmt.Errorf("drawing the worst of %s: %w", b.name, err)
		}
		worst.Width, worst.Color = 1, ink
		p.Add(worst)
		labels.XYs = append(labels.XYs, plotter.XY{X: b.worst, Y: at})
		labels.Labels = append(labels.Labels, fmt.Sprintf(" %s s (worst of %d: %s s)", seconds(b.median), b.n, seconds(b.worst)))
	}
	tags, err := plotter.NewLabels(labels)
	if err != nil {
		return fmt.Errorf("labelling the bars: %w", err)
	}
	for i := range tags.TextStyle {
		tags.TextStyle[i].YAlign, tags.TextStyle[i].Color = draw.YCenter, ink
		tags.TextStyle[i].Font.Variant, tags.TextStyle[i].Font.Size = "Sans", 10
	}
	p.Add(tags)
	p.NominalY(names...)
	p.Y.Padding = 4 * vg.Millimeter
	p.X.Max = longest * past
	p.X.Tick.Marker = plot.ConstantTicks(ticks(p.X.Max))
	return write(p, out)
}

// add draws one bar, by its parts where they are known.
func add(p *plot.Plot, b bar, at float64) error {
	values, paint := b.parts, colours
	if values == nil {
		values, paint = []float64{b.median}, []color.Color{whole}
	}
	var below *plotter.BarChart
	for i, value := range values {
		chart, err := plotter.NewBarChart(plotter.Values{value}, thickness)
		if err != nil {
			return fmt.Errorf("drawing %s: %w", b.name, err)
		}
		chart.Horizontal, chart.XMin, chart.Color, chart.LineStyle.Width = true, at, paint[i], 0
		if below != nil {
			chart.StackOn(below)
		}
		below = chart
		p.Add(chart)
		if b.parts != nil {
			p.Legend.Add(fmt.Sprintf("%s, %s s", parts[i].name, hundredths(value)), chart)
		}
	}
	return nil
}

// write renders with the text as text, which any viewer can draw.
func write(p *plot.Plot, out io.Writer) error {
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant, style.Font.Size = "Sans", font.Length(10)
	}
	p.Title.TextStyle.Font.Size = 13
	c := vgsvg.NewWith(vgsvg.UseWH(width, height))
	p.Draw(draw.Crop(draw.New(c), margin, -margin, margin, -margin))
	var svg bytes.Buffer
	if _, err := c.WriteTo(&svg); err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	// The library names the font that it measures by; few viewers have it.
	if _, err := out.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

func ticks(end float64) []plot.Tick {
	var all []plot.Tick
	for at := 0; float64(at) <= end; at += 10 {
		all = append(all, plot.Tick{Value: float64(at), Label: strconv.Itoa(at)})
	}
	return all
}

func seconds(s float64) string    { return strconv.FormatFloat(s, 'f', 1, 64) }
func hundredths(s float64) string { return strconv.FormatFloat(s, 'f', 2, 64) }
